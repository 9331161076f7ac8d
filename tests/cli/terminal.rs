//! Commands on terminals of 60, 80 and 100 columns: what they print fits, and the live line leaves nothing behind.

use std::time::Duration;

use callsheet_emulator::Options;

use crate::support::terminal::{OnTerminal, Screen};
use crate::support::{TestEnv, manifests, until};

const WIDTHS: [usize; 3] = [60, 80, 100];

fn on_terminal(env: &TestEnv, arguments: &[&str], columns: usize, term: &str) -> OnTerminal {
    let mut command = env.command(arguments.iter().copied());
    command.env("TERM", term);
    OnTerminal::start(command, columns)
}

/// Live lines that were left on the screen.
fn ghosts(screen: &Screen) -> Vec<&str> {
    let is_live = |line: &&str| {
        line.starts_with('[') && line.contains(" jobs")
            || line.contains(" credits spent")
            || line.starts_with("last failed: ")
    };
    screen.lines().into_iter().filter(is_live).collect()
}

/// Lines that do not fit. Commands to copy are never wrapped, and no word is.
fn too_wide(screen: &Screen, columns: usize) -> Vec<&str> {
    let is_wide = |line: &&str| line.chars().count() > columns && !line.starts_with("    callsheet ");
    screen.lines().into_iter().filter(|line| is_wide(line) && line.contains(' ')).collect()
}

#[test]
fn the_live_line_fits_and_leaves_nothing_behind_when_the_terminal_is_resized() {
    let env = TestEnv::with(Options { manual_clock: true, ..Options::default() });
    env.write("batch.csv", manifests::manifest("image", 12));
    let running = on_terminal(&env, &["run", "batch.csv"], 100, "xterm-256color");
    running.shows("12 in flight");
    for columns in [60, 35, 80, 120, 61] {
        let drawn = || running.written().matches("\x1b[J").count();
        let before = drawn();
        running.resize(columns);
        until("the line to be drawn anew", || drawn() > before);
    }
    env.advance(Duration::from_secs(60));
    let (status, written, screen) = running.end();
    assert!(status.success(), "{written}");
    assert_eq!(ghosts(&screen), [""; 0], "{:#?}", screen.lines());
    let overflows: Vec<_> = screen.overflows.iter().filter(|line| line.starts_with('[')).collect();
    // One that was drawn for a wider terminal is wrapped once, and goes when it is drawn for the narrower one.
    assert!(overflows.len() <= 5, "{overflows:#?}");
    assert!(screen.lines().iter().any(|line| line.starts_with("elapsed: ")), "{:#?}", screen.lines());
}

#[test]
fn tables_and_the_live_line_are_no_wider_than_their_terminal() {
    // The others are made only when the live line has said what failed.
    let env = TestEnv::with(Options { manual_clock: true, ..Options::default() });
    env.faults("[[rules]]\ncontains = 'image-2'\neffect = { do = 'content-rejected' }");
    env.write("spring-in-the-harbour.csv", manifests::manifest("image", 12));
    for columns in WIDTHS {
        let batch = format!("spring-in-the-harbour-{columns}");
        let run = ["run", "spring-in-the-harbour.csv", "--batch", &batch];
        let running = on_terminal(&env, &run, columns, "xterm");
        running.shows("last failed: image-2 (content_rejected)");
        env.advance(Duration::from_secs(600));
        let (status, written, screen) = running.end();
        assert_eq!(status.code(), Some(1), "{written}");
        assert_eq!(screen.overflows.iter().filter(|line| line.starts_with('[')).count(), 0, "{written}");
        assert_eq!(ghosts(&screen), [""; 0]);
        assert_eq!(too_wide(&screen, columns), [""; 0], "run at {columns} columns");
        assert!(written.contains("\x1b[31m"), "failures are red: {written:?}");
        let commands: [&[&str]; 6] = [
            &["status"],
            &["jobs", &batch],
            &["ledger", &batch],
            &["plan", "spring-in-the-harbour.csv", "--batch", &batch],
            &["models"],
            &["voices"],
        ];
        for command in commands {
            let (_, written, screen) = on_terminal(&env, command, columns, "xterm").end();
            assert!(screen.lines().len() > 2, "{written}");
            assert_eq!(too_wide(&screen, columns), [""; 0], "{command:?} at {columns} columns");
        }
    }
}

#[test]
fn several_kinds_have_a_bar_each_and_watching_shows_the_same() {
    let env = TestEnv::with(Options { manual_clock: true, ..Options::default() });
    let [images, videos] = [manifests::manifest("image", 2), manifests::manifest("video", 1)];
    let video = videos.lines().nth(1).unwrap();
    env.write("batch.csv", format!("{images}{video}\n"));
    let running = on_terminal(&env, &["run", "batch.csv"], 80, "xterm");
    running.shows("image  [------------------] 0/2");
    running.shows("video  [------------------] 0/1");
    running.shows("3 in flight");
    let watching = on_terminal(&env, &["status", "batch", "--watch"], 80, "xterm");
    watching.shows("image  [------------------] 0/2");
    watching.shows(" credits spent");
    env.advance(Duration::from_secs(600));
    let (status, written, screen) = running.end();
    assert!(status.success(), "{written}");
    assert_eq!(ghosts(&screen), [""; 0], "{:#?}", screen.lines());
    drop(watching);
}

#[test]
fn a_dumb_terminal_and_no_color_are_respected() {
    let env = TestEnv::new();
    env.faults("[[rules]]\ncontains = 'image-2'\neffect = { do = 'content-rejected' }");
    env.write("batch.csv", manifests::manifest("image", 3));
    let (_, written, _) = on_terminal(&env, &["run", "batch.csv", "--batch", "dumb"], 80, "dumb").end();
    assert!(written.contains("elapsed: ") && !written.contains('\x1b'), "{written:?}");
    let mut command = env.command(["run", "batch.csv", "--batch", "plain"]);
    command.env("TERM", "xterm").env("NO_COLOR", "1");
    let (_, written, _) = OnTerminal::start(command, 80).end();
    let moves = ["\x1b[J", "\x1b[1A", "\x1b[2A"];
    let written = moves.iter().fold(written, |written, moving| written.replace(moving, ""));
    assert!(
        !written.contains('\x1b'),
        "the live line moves the cursor, and nothing is coloured: {written:?}"
    );
}
