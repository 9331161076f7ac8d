//! Manifests to play: a few small jobs of one kind, or of all.

/// The kinds that have an idempotency key.
pub const KINDS: [&str; 5] = ["video", "image", "music", "speech", "sound-effect"];

/// The header of every manifest here.
const COLUMNS: &str = "id,kind,model,prompt,text,voice_id,duration,duration_seconds";

/// Names of the jobs: `image-1`, `image-2` and so on.
pub fn ids(kind: &str, jobs: usize) -> Vec<String> {
    (1..=jobs).map(|n| format!("{kind}-{n}")).collect()
}

/// A manifest of `jobs` jobs of one kind.
pub fn manifest(kind: &str, jobs: usize) -> String {
    let rows: Vec<String> = ids(kind, jobs).iter().map(|id| row(kind, id)).collect();
    format!("{COLUMNS}\n{}\n", rows.join("\n"))
}

/// A manifest of `each` jobs of every kind, the kinds taking turns.
pub fn of_all_kinds(each: usize) -> (String, Vec<String>) {
    let ids = (1..=each).flat_map(|n| KINDS.map(|kind| (kind, format!("{kind}-{n}"))));
    let (rows, ids): (Vec<String>, Vec<String>) = ids.map(|(kind, id)| (row(kind, &id), id)).unzip();
    (format!("{COLUMNS}\n{}\n", rows.join("\n")), ids)
}

/// A manifest of `each` stills, clips from these and longer clips from those, every row before the one that it needs.
pub fn storyboards(each: usize) -> (String, Vec<String>) {
    let rows_of = |n: usize| {
        [
            format!(
                r#"{{"id": "long-{n}", "kind": "video", "model": "model-s-2-5", "prompt": "on {n}", "duration": "5s", "video_urls": ["job:clip-{n}"]}}"#
            ),
            format!(
                r#"{{"id": "clip-{n}", "kind": "video", "model": "house-c1", "prompt": "clip {n}", "duration": "2s", "image_urls": ["job:still-{n}"]}}"#
            ),
            format!(r#"{{"id": "still-{n}", "kind": "image", "model": "gi-2", "prompt": "still {n}"}}"#),
        ]
    };
    let rows: Vec<String> = (1..=each).flat_map(rows_of).collect();
    let ids = (1..=each).flat_map(|n| ["long", "clip", "still"].map(|what| format!("{what}-{n}")));
    (format!("{{\"jobs\": [\n{}\n]}}\n", rows.join(",\n")), ids.collect())
}

/// A row as short and cheap as its kind allows.
fn row(kind: &str, id: &str) -> String {
    let (model, prompt, text, voice, duration, seconds) = match kind {
        "video" => ("house-turbo", "a boat", "", "", "5", ""),
        "image" => ("gi-2", "a harbour", "", "", "", ""),
        "music" => ("", "slow piano", "", "", "", "10"),
        "speech" => ("", "", "All aboard.", "aria", "", ""),
        "sound-effect" => ("", "a gull", "", "", "", "1"),
        other => panic!("no script for {other}"),
    };
    let number = |said: &str| if said.is_empty() { String::new() } else { format!("{said} {id}") };
    let (prompt, text) = (number(prompt), number(text));
    format!("{id},{kind},{model},{prompt},{text},{voice},{duration},{seconds}")
}
