//! What a process asked of the system, as `strace` tells it: calls with the moments at which each began and
//! ended. A moment is a line of the trace.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// The calls that are traced.
pub const CALLS: &str = "openat,mkdir,mkdirat,write,writev,pwrite64,pwritev,sendto,sendmsg,sendfile,\
                         copy_file_range,ftruncate,fallocate,fsync,fdatasync,syncfs,rename,renameat,renameat2,link,\
                         linkat,unlink,unlinkat,rmdir";

/// A call that succeeded.
#[derive(Debug)]
pub struct Event {
    /// When it was asked for.
    pub entry: usize,
    /// When it was done.
    pub exit: usize,
    pub call: Call,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Call {
    /// A file was opened that may be made by that, or emptied.
    Open {
        path: PathBuf,
        empties: bool,
    },
    /// Bytes went to a file, or its length changed.
    Write {
        path: PathBuf,
        data: Vec<u8>,
    },
    /// Bytes went to a socket.
    Send {
        data: Vec<u8>,
    },
    /// `fsync` or `fdatasync` of a file or a folder.
    Sync {
        path: PathBuf,
    },
    /// `syncfs`, by a folder.
    SyncBelow {
        path: PathBuf,
    },
    Rename {
        from: PathBuf,
        to: PathBuf,
    },
    /// A file got another name beside those that it has.
    Link {
        from: PathBuf,
        to: PathBuf,
    },
    Mkdir {
        path: PathBuf,
    },
    /// A name is gone.
    Remove {
        path: PathBuf,
    },
}

/// What the line of a call ends with that another thread's follows, or whose process was killed before it was over.
const WITHOUT_END: [&str; 2] = [" <unfinished ...>", " <detached ...>"];

/// Reads a trace that was made with `-f -y` of a process that works in `folder`. `first` is the number of its
/// first line. It is read before anything else changes the folder: of a call that the end of the process interrupted the
/// trace has no result, and a file that is renamed shows that it took place.
pub fn read(text: &str, first: usize, folder: &Path) -> Vec<Event> {
    let mut begun: HashMap<&str, (usize, String)> = HashMap::new();
    let mut events = Vec::new();
    for (at, line) in text.lines().enumerate().map(|(n, line)| (first + n, line)) {
        let (pid, line) = line.split_once(' ').unwrap();
        let line = line.trim_start();
        if let Some(head) = WITHOUT_END.into_iter().find_map(|end| line.strip_suffix(end)) {
            begun.insert(pid, (at, head.to_owned()));
        } else if let Some(rest) = line.strip_prefix("<... ") {
            let (_, rest) = rest.split_once(" resumed>").unwrap();
            // One that was begun before the trace is none of ours.
            let Some((entry, head)) = begun.remove(pid) else { continue };
            events.extend(event(&format!("{head}{rest}"), entry, at, folder));
        } else {
            events.extend(event(line, at, at, folder));
        }
    }
    let last = first + text.lines().count();
    for (entry, head) in begun.into_values() {
        events.extend(event(&format!("{head}) = ?"), entry, last, folder));
    }
    events.sort_by_key(|event| event.exit);
    events
}

fn event(line: &str, entry: usize, exit: usize, folder: &Path) -> Option<Event> {
    let (name, rest) = line.split_once('(')?;
    let (arguments, result) = rest.rsplit_once(" = ")?;
    let is_interrupted = result.starts_with('?');
    if result.starts_with('-') || is_interrupted && !name.starts_with("rename") {
        return None;
    }
    let arguments =
        arguments.trim_end().strip_suffix(')').unwrap_or_else(|| panic!("a call without an end: {line}"));
    let arguments = split(arguments.trim_end_matches(" <unfinished ...>"));
    let call = call(name, &arguments, result, folder)?;
    let took_place = match &call {
        Call::Rename { from, to } if is_interrupted => is_there(to) && !is_there(from),
        _ => true,
    };
    took_place.then_some(Event { entry, exit, call })
}

fn is_there(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

fn call(name: &str, arguments: &[&str], result: &str, folder: &Path) -> Option<Call> {
    let named = |at: Option<&str>, name| named(at.and_then(descriptor).as_deref().unwrap_or(folder), name);
    Some(match name {
        "openat" => {
            let flags = arguments[2];
            let is_file = flags.contains("O_CREAT") && !flags.contains("O_TMPFILE");
            if !is_file && !flags.contains("O_TRUNC") {
                return None;
            }
            Call::Open { path: descriptor(result)?, empties: flags.contains("O_TRUNC") }
        }
        "write" | "pwrite64" | "writev" | "pwritev" | "sendto" | "sendmsg" => {
            let data = texts(arguments[1]);
            match descriptor(arguments[0]) {
                Some(path) => Call::Write { path, data },
                None if arguments[0].contains("<socket:") => Call::Send { data },
                // A pipe, an event.
                None => return None,
            }
        }
        "sendfile" => Call::Write { path: descriptor(arguments[0])?, data: Vec::new() },
        "copy_file_range" => Call::Write { path: descriptor(arguments[2])?, data: Vec::new() },
        "ftruncate" | "fallocate" => Call::Write { path: descriptor(arguments[0])?, data: Vec::new() },
        "fsync" | "fdatasync" => Call::Sync { path: descriptor(arguments[0])? },
        "syncfs" => Call::SyncBelow { path: descriptor(arguments[0])? },
        "mkdir" => Call::Mkdir { path: named(None, arguments[0]) },
        "mkdirat" => Call::Mkdir { path: named(Some(arguments[0]), arguments[1]) },
        "rename" => Call::Rename { from: named(None, arguments[0]), to: named(None, arguments[1]) },
        "renameat" | "renameat2" => Call::Rename {
            from: named(Some(arguments[0]), arguments[1]),
            to: named(Some(arguments[2]), arguments[3]),
        },
        "unlink" | "rmdir" => Call::Remove { path: named(None, arguments[0]) },
        "unlinkat" => Call::Remove { path: named(Some(arguments[0]), arguments[1]) },
        "link" => Call::Link { from: named(None, arguments[0]), to: named(None, arguments[1]) },
        "linkat" => Call::Link {
            from: named(Some(arguments[0]), arguments[1]),
            to: named(Some(arguments[2]), arguments[3]),
        },
        _ => return None,
    })
}

/// The path of `5</path>`; nothing for a socket or a pipe, or a file that has no name any more.
fn descriptor(text: &str) -> Option<PathBuf> {
    let (_, path) = text.split_once('<')?;
    let path = path.strip_suffix('>').unwrap();
    (path.starts_with('/') && !path.ends_with(" (deleted)")).then(|| PathBuf::from(path))
}

/// A name in a folder.
fn named(folder: &Path, name: &str) -> PathBuf {
    folder.join(String::from_utf8(texts(name)).unwrap())
}

/// Arguments of a call, as they stand.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0, 0);
    let (mut is_quoted, mut is_escaped) = (false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            _ if is_quoted => {}
            b'[' | b'{' | b'<' | b'(' => depth += 1,
            b']' | b'}' | b'>' | b')' => depth -= 1,
            b',' if depth == 0 => {
                parts.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text[start..].trim());
    parts
}

/// All quoted text in an argument, one after the other.
fn texts(argument: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = argument;
    while let Some((_, text)) = rest.split_once('"') {
        let mut at = text.bytes().enumerate();
        let end = loop {
            let (n, byte) = at.next().unwrap();
            match byte {
                b'"' => break n,
                b'\\' => bytes.push(escaped(text, &mut at)),
                byte => bytes.push(byte),
            }
        };
        rest = &text[end + 1..];
        assert!(!rest.starts_with("..."), "strace cut a text off");
    }
    bytes
}

/// What follows a backslash.
fn escaped(text: &str, at: &mut impl Iterator<Item = (usize, u8)>) -> u8 {
    let (n, byte) = at.next().unwrap();
    match byte {
        b'n' => b'\n',
        b't' => b'\t',
        b'r' => b'\r',
        b'v' => 0x0b,
        b'f' => 0x0c,
        b'0'..=b'7' => {
            let digits = text[n..].bytes().take(3).take_while(|byte| (b'0'..=b'7').contains(byte)).count();
            for _ in 1..digits {
                at.next();
            }
            u8::from_str_radix(&text[n..n + digits], 8).unwrap()
        }
        other => other,
    }
}

#[test]
fn a_trace_is_read_as_it_was_written() {
    let text = r#"7  openat(AT_FDCWD</w>, "/w/a", O_WRONLY|O_CREAT|O_TRUNC|O_CLOEXEC, 0666) = 5</w/a>
7  openat(AT_FDCWD</w>, "/w/b", O_RDONLY) = 6</w/b>
7  write(5</w/a>, "x\n\"q\\\377\0y\0017", 10 <unfinished ...>
8  fdatasync(5</w/a>)    = 0
7  <... write resumed>)              = 10
8  pwrite64(5</w/a>, "", 0, 7)     = 0
8  fsync(6</w/c>)              = -1 EIO (Input/output error)
7  renameat2(5</w/d>, "b", AT_FDCWD</w>, "/w/c", RENAME_NOREPLACE) = 0
7  writev(4<socket:[2]>, [{iov_base="POST /a", iov_len=7}, {iov_base="b, c", iov_len=4}], 2) = 11
7  write(1<pipe:[3]>, "said", 4) = 4
7  +++ exited with 0 +++
"#;
    let events = read(text, 100, Path::new("/w"));
    let calls: Vec<&Call> = events.iter().map(|event| &event.call).collect();
    let write = |data: &[u8]| Call::Write { path: "/w/a".into(), data: data.to_vec() };
    let expected = [
        Call::Open { path: "/w/a".into(), empties: true },
        Call::Sync { path: "/w/a".into() },
        write(b"x\n\"q\\\xff\0y\x017"),
        write(b""),
        Call::Rename { from: "/w/d/b".into(), to: "/w/c".into() },
        Call::Send { data: b"POST /ab, c".to_vec() },
    ];
    assert_eq!(calls, expected.iter().collect::<Vec<_>>());
    assert_eq!((events[1].entry, events[2].entry, events[2].exit), (103, 102, 104));
}

#[test]
fn a_rename_that_a_kill_interrupted_took_place_where_the_file_has_its_new_name() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().canonicalize().unwrap();
    std::fs::write(folder.join("new"), "").unwrap();
    let rename =
        |end: &str| format!("7  renameat2(5<{}>, \"old\", AT_FDCWD, \"new\", 0{end}\n", folder.display());
    for end in [
        " <unfinished ...>",
        " <detached ...>",
        ") = ?",
        " <unfinished ...>) = ?",
        " <unfinished ...>\n7  <... renameat2 resumed>) = ?",
    ] {
        let calls = |folder: &Path| {
            read(&rename(end), 0, folder).into_iter().map(|event| event.call).collect::<Vec<_>>()
        };
        assert_eq!(
            calls(&folder),
            [Call::Rename { from: folder.join("old"), to: folder.join("new") }],
            "{end}"
        );
        assert_eq!(calls(Path::new("/nowhere")), [], "{end}: it did not take place");
    }
}

/// A text that has the sign of a result in it.
#[test]
fn a_write_that_the_end_of_its_process_interrupted_is_none() {
    let write = "7  write(5</state/log>, \"retries = 3\", 11 <detached ...>\n";
    assert!(read(write, 0, Path::new("/")).is_empty());
}
