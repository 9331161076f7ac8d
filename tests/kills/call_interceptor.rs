//! A proxy between client and service that counts the calls, and says when the n-th one is there.

use std::io::{self, Write};
use std::net::TcpStream;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::support::proxy::{connect, in_thread, listen_before, message};

/// What the client's end finds the counted call doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallOutcome {
    /// Sent, and lost with its sender.
    Lost,
    /// Sent, and heard by the service only after its sender has ended.
    Late,
    /// Done by the service, and the answer reaches nobody.
    Answered,
    /// Answered.
    Passed,
}

impl CallOutcome {
    pub const ALL: [CallOutcome; 4] =
        [CallOutcome::Lost, CallOutcome::Late, CallOutcome::Answered, CallOutcome::Passed];
}

/// The call that is waited for.
struct Watch {
    /// Calls that come before it, and itself.
    left: u32,
    place: CallOutcome,
    reached: Sender<()>,
}

/// A proxy on a port of its own. Its threads end with the test's process, or with their connections.
pub struct CallInterceptor {
    port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    service: String,
    watch: Mutex<Option<Watch>>,
    /// Whether the client has ended that was waited for.
    is_over: Mutex<bool>,
    ended: Condvar,
}

impl CallInterceptor {
    /// In front of the service at `base_url` (`http://HOST:PORT`).
    pub fn before(base_url: &str) -> CallInterceptor {
        let (listener, port, service) = listen_before(base_url);
        let shared = Arc::new(Shared {
            service,
            watch: Mutex::default(),
            is_over: Mutex::new(true),
            ended: Condvar::new(),
        });
        let seen = shared.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let seen = seen.clone();
                in_thread(client, move |client| seen.carry(client));
            }
        });
        CallInterceptor { port, shared }
    }

    pub fn base_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Says so when the n-th call from now on is at that place.
    pub fn watch(&self, nth: u32, place: CallOutcome, reached: Sender<()>) {
        *self.shared.is_over.lock().unwrap() = false;
        *self.shared.watch.lock().unwrap() = Some(Watch { left: nth, place, reached });
    }

    /// The client has ended: nothing is waited for any more, and what was held back goes its way.
    pub fn release(&self) {
        *self.shared.watch.lock().unwrap() = None;
        *self.shared.is_over.lock().unwrap() = true;
        self.shared.ended.notify_all();
    }

    /// A call of the test's own through the proxy: connections that came before it have been opened by then.
    pub fn pass(&self) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        write!(stream, "GET /emulator/audit HTTP/1.1\r\nhost: test\r\n\r\n").unwrap();
        message(&mut stream).unwrap();
    }

    /// Whether nothing is on its way through it: this handle and the thread that accepts connections are left.
    pub fn is_empty(&self) -> bool {
        Arc::strong_count(&self.shared) == 2
    }
}

impl Shared {
    /// Counts a call; its place, if it is the one.
    fn count(&self) -> Option<(CallOutcome, Sender<()>)> {
        let mut watch = self.watch.lock().unwrap();
        let counted = watch.as_mut()?;
        counted.left -= 1;
        if counted.left > 0 {
            return None;
        }
        watch.take().map(|watch| (watch.place, watch.reached))
    }

    /// Waits until the client has ended.
    fn wait(&self) {
        let is_over = self.is_over.lock().unwrap();
        drop(self.ended.wait_while(is_over, |is_over| !*is_over).unwrap_or_else(PoisonError::into_inner));
    }

    fn carry(&self, client: &mut TcpStream) -> io::Result<()> {
        let mut service = connect(client, &self.service)?;
        while let Some(request) = message(client)? {
            let found = self.count();
            let say = |reached: &Sender<()>| {
                // Whoever waited may have stopped waiting: then nobody needs to hear of it.
                let _ = reached.send(());
            };
            if let Some((place @ (CallOutcome::Lost | CallOutcome::Late), reached)) = &found {
                say(reached);
                self.wait();
                if *place == CallOutcome::Late {
                    service.write_all(&request)?;
                    message(&mut service)?;
                }
                return Ok(());
            }
            service.write_all(&request)?;
            let Some(reply) = message(&mut service)? else {
                // It hung up: the place is reached all the same.
                found.iter().for_each(|(_, reached)| say(reached));
                return Ok(());
            };
            if let Some((CallOutcome::Answered, reached)) = &found {
                say(reached);
                self.wait();
                return Ok(());
            }
            client.write_all(&reply)?;
            found.iter().for_each(|(_, reached)| say(reached));
        }
        Ok(())
    }
}
