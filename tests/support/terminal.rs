//! A terminal that a client runs on: a pseudo-terminal of some width, and a screen that shows what was written to it.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use super::{eventually, until};

/// Rows of every terminal here.
const ROWS: u16 = 500;

/// A client on a terminal of its own.
pub struct OnTerminal {
    child: Child,
    terminal: OwnedFd,
    /// What it wrote, with the width that the terminal had then.
    written: Arc<Mutex<Vec<(usize, u8)>>>,
    columns: Arc<Mutex<usize>>,
    reader: Option<JoinHandle<()>>,
}

impl OnTerminal {
    /// Starts it on a terminal with so many columns.
    pub fn start(mut command: Command, columns: usize) -> OnTerminal {
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&terminal).unwrap();
        unlockpt(&terminal).unwrap();
        let name = ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap();
        resize(&terminal, columns);
        let open = || File::options().read(true).write(true).open(&name).unwrap();
        command.stdin(Stdio::null()).stdout(open()).stderr(open());
        let child = command.spawn().unwrap();
        // Its own ends are open in the child alone: reading ends when it does.
        drop(command);
        let written = Arc::new(Mutex::new(Vec::new()));
        let columns = Arc::new(Mutex::new(columns));
        let (into, width) = (written.clone(), columns.clone());
        let mut reading = File::from(terminal.try_clone().unwrap());
        let reader = std::thread::spawn(move || {
            let mut piece = [0; 8 * 1024];
            while let Ok(read @ 1..) = reading.read(&mut piece) {
                let width = *width.lock().unwrap();
                into.lock().unwrap().extend(piece[..read].iter().map(|byte| (width, *byte)));
            }
        });
        OnTerminal { child, terminal, written, columns, reader: Some(reader) }
    }

    /// Makes the terminal narrower or wider, as a person does with its window.
    pub fn resize(&self, columns: usize) {
        *self.columns.lock().unwrap() = columns;
        resize(&self.terminal, columns);
        // The kernel tells the processes of the terminal's session; this one belongs to none.
        let _ = kill_process(Pid::from_child(&self.child), Signal::WINCH);
    }

    /// All that was written so far.
    pub fn written(&self) -> String {
        let bytes: Vec<u8> = self.written.lock().unwrap().iter().map(|(_, byte)| *byte).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Waits until this was written.
    #[track_caller]
    pub fn shows(&self, text: &str) {
        until(&format!("\"{text}\" on the terminal"), || self.written().contains(text));
    }

    /// Waits until it ends. Returns what was written, and the screen.
    pub fn end(mut self) -> (ExitStatus, String, Screen) {
        let status = eventually("the client to end", || self.child.try_wait().unwrap());
        self.reader.take().unwrap().join().unwrap();
        let mut screen = Screen::new();
        screen.take(&self.written.lock().unwrap());
        (status, self.written(), screen)
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        // Only a test that failed leaves one running.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn resize(terminal: &OwnedFd, columns: usize) {
    let columns = u16::try_from(columns).unwrap();
    tcsetwinsize(terminal, Winsize { ws_row: ROWS, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
}

/// What a terminal shows that wraps its lines anew when it is resized, as most do: whole lines, each of which may take
/// several rows. The cursor stays at its character.
pub struct Screen {
    columns: usize,
    lines: Vec<String>,
    /// Line and character.
    cursor: (usize, usize),
    /// Lines that the cursor returned from that did not fit the terminal.
    pub overflows: Vec<String>,
}

impl Screen {
    fn new() -> Screen {
        Screen { columns: 0, lines: vec![String::new()], cursor: (0, 0), overflows: Vec::new() }
    }

    /// The lines that are left on it.
    pub fn lines(&self) -> Vec<&str> {
        self.lines.iter().map(|line| line.trim_end()).collect()
    }

    fn take(&mut self, written: &[(usize, u8)]) {
        let mut at = 0;
        while at < written.len() {
            self.columns = written[at].0;
            let rest: Vec<u8> = written[at..].iter().take(16).map(|(_, byte)| *byte).collect();
            match rest[0] {
                b'\r' => self.carriage_return(),
                b'\n' => self.new_line(),
                0x1b => {
                    let end = rest.iter().position(u8::is_ascii_alphabetic).expect("a whole sequence");
                    match &rest[..=end] {
                        b"\x1b[J" => self.erase_below(),
                        [b'\x1b', b'[', number @ .., b'A'] => {
                            let rows = std::str::from_utf8(number).unwrap().parse().unwrap();
                            (0..rows).for_each(|_| self.cursor_up());
                        }
                        [.., b'm'] => {}
                        other => panic!("{:?} is not known here", String::from_utf8_lossy(other)),
                    }
                    at += end;
                }
                byte => {
                    let length = match byte {
                        0xf0.. => 4,
                        0xe0.. => 3,
                        0xc0.. => 2,
                        _ => 1,
                    };
                    self.put(std::str::from_utf8(&rest[..length]).unwrap());
                    at += length - 1;
                }
            }
            at += 1;
        }
    }

    /// To the first column of the row that the cursor is in, which may be in the middle of a line.
    fn carriage_return(&mut self) {
        let (line, character) = self.cursor;
        let width = self.lines[line].chars().count();
        if width > self.columns {
            self.overflows.push(self.lines[line].clone());
        }
        // A row that is full holds the cursor at its end.
        let row = character.saturating_sub(1) / self.columns;
        self.cursor = (line, if character == 0 { 0 } else { row * self.columns });
    }

    fn new_line(&mut self) {
        let line = self.cursor.0 + 1;
        if line == self.lines.len() {
            self.lines.push(String::new());
        }
        self.cursor = (line, 0);
    }

    /// To the same column of the row above, which may be of the same line.
    fn cursor_up(&mut self) {
        let (line, character) = self.cursor;
        if let Some(above) = character.checked_sub(self.columns) {
            self.cursor = (line, above);
        } else if line > 0 {
            let rows = self.lines[line - 1].chars().count().saturating_sub(1) / self.columns;
            self.cursor = (line - 1, rows * self.columns + character);
        }
    }

    fn erase_below(&mut self) {
        let (line, character) = self.cursor;
        self.lines.truncate(line + 1);
        self.lines[line] = self.lines[line].chars().take(character).collect();
    }

    fn put(&mut self, text: &str) {
        let (line, character) = self.cursor;
        let mut characters: Vec<char> = self.lines[line].chars().collect();
        characters.truncate(character);
        characters.extend(text.chars());
        self.lines[line] = characters.into_iter().collect();
        self.cursor.1 += 1;
    }
}
