//! Open live pages: `cargo bench --bench open_pages [-- JOBS [PAIRS]]`.
//!
//! The same small files as in `sound_effects`, by a run that nobody looks at and by one that 50 pages look at: half of them
//! at the overview, half at the batch. What the readers of the pages cost is not counted.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::cast_precision_loss, unreachable_pub)]

mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use support::service::Options;
use support::{RunFolders, Service, Usage, callsheet, measure, number, parts, print_ratios, sound_effects};

const IN_FLIGHT: usize = 64;
const PAGES: usize = 50;
const SERVED: Options = Options { result_bytes: 10_000, image_seconds: 0 };
/// Until a page tries again to connect to a run that has only begun.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

fn main() {
    if parts() {
        return;
    }
    let (jobs, pairs) = (number(0, 30_000), number(1, 5));
    let mut folders = RunFolders::new();
    run(&mut folders, jobs.min(1_000), 0);
    let (mut rates, mut cpu) = (Vec::new(), Vec::new());
    for pair in 1..=pairs {
        println!("pair {pair}");
        let mut order = [0, PAGES];
        order.rotate_left(pair % 2);
        let usages = order.map(|pages| (pages, run(&mut folders, jobs, pages)));
        let of = |wanted| usages.iter().find(|(pages, _)| *pages == wanted).unwrap().1;
        let (alone, watched) = (of(0), of(PAGES));
        rates.push(watched.rate(jobs) / alone.rate(jobs));
        cpu.push(watched.cpu_seconds / alone.cpu_seconds);
    }
    print_ratios("rate with 50 open pages / with none", &mut rates, "1.00");
    print_ratios("processor time with 50 open pages / with none", &mut cpu, "1.00");
}

fn run(folders: &mut RunFolders, jobs: usize, pages: usize) -> Usage {
    let folder = &folders.next();
    let service = Service::start(SERVED);
    sound_effects(folder, jobs);
    // Free again when the run asks for it; another process could take it in between, and the run would say so.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let readers = Readers::start(address, pages);
    let page = format!("--page={address}");
    let usage = measure(&mut callsheet(folder, &service.base_url, IN_FLIGHT, &["run", "gulls.csv", &page]));
    assert_eq!(usage.code, 0, "callsheet run failed");
    let events = readers.stop();
    println!("{pages} pages: {}, {events} events", usage.line(jobs, "jobs"));
    usage
}

/// Pages that are open: each reads its stream of events until the run ends.
struct Readers {
    is_over: Arc<AtomicBool>,
    events: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Readers {
    fn start(address: SocketAddr, pages: usize) -> Readers {
        let (is_over, events) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let reader = |page: usize| {
            let (is_over, events) = (is_over.clone(), events.clone());
            let path = if page.is_multiple_of(2) { "/events" } else { "/events?batch=gulls" };
            std::thread::spawn(move || read(address, path, &is_over, &events))
        };
        let threads = (0..pages).map(reader).collect();
        Readers { is_over, events, threads }
    }

    /// How many events all of them have read.
    fn stop(self) -> u64 {
        self.is_over.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
        self.events.load(Ordering::Relaxed)
    }
}

/// Reads a stream; one that is refused, since the run or its batch has only begun, is asked for again.
fn read(address: SocketAddr, path: &str, is_over: &AtomicBool, events: &AtomicU64) {
    while !is_over.load(Ordering::Relaxed) {
        if let Ok(mut stream) = TcpStream::connect(address) {
            let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\n\r\n");
            let mut buffer = [0; 64 * 1024];
            let mut was_written = stream.write_all(request.as_bytes()).is_ok();
            while was_written && let Ok(read @ 1..) = stream.read(&mut buffer) {
                let found = buffer[..read].windows(7).filter(|window| window == b"\ndata: ").count();
                events.fetch_add(found as u64, Ordering::Relaxed);
                was_written = !is_over.load(Ordering::Relaxed);
            }
        }
        std::thread::park_timeout(RETRY_INTERVAL);
    }
}
