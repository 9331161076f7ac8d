//! Every entry of fuzzing, with some thousands of broken texts that are the same on every machine. `.ci/fuzz` searches
//! on, guided by what the code does.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

#[allow(unreachable_pub, reason = "the entries are public for the targets")]
#[path = "../fuzz/entries.rs"]
mod entries;

/// Texts that are nearly right: what is broken from them gets far into a reader.
#[rustfmt::skip]
const MANIFESTS: [&[u8]; 3] = [
    b"id,kind,model,prompt,options.seed,meta.sku,count,deadline\n1,image,gi-2,\"a \"\"b\"\",\nc\",7,x,2,30m\n2,video,,x,,,,\n",
    br#"{"batch":"b","policy":{"budget":5,"deadline":"1h"},"defaults":{"model":"m"},"jobs":[{"prompt":"\u00e9","options":{"a":[1.5,null]},"count":3}]}"#,
    b"{\"id\":\"a\",\"kind\":\"image\",\"image_urls\":[\"https://a/1\"]}\n{\"text\":\"hi\",\"speed\":1.5,\"meta\":{\"k\":{}}}\n",
];
const CONFIG: &[u8] = br#"[service]
base_url = "https://a"
[limits]
in_flight = 3
in_flight_per_kind = { video = 4 }
[poll]
min = "1s"
[output]
max_file = "2GiB"
allow_hosts = ["*.a.b", "10.0.0.0/8"]
[rules.models."x"]
like = "model-r"
"#;
const CONTROL: [&[u8]; 2] = [
    br#"{"batches":[{"name":"b","state":"running","parked_by":null,"jobs":1,"planned_credits":1,"budget_credits":1,"held_credits":0,"charged_credits":1,"waived_credits":0,"refunded_credits":0,"queued":1}]}"#,
    br#"{"batch":"b","job":"j","credits":1}"#,
];
const ANSWERS: [&[u8]; 2] = [
    b"\0\x64\x02 7{\"code\":0,\"data\":{\"id\":\"asked\",\"status\":\"success\",\"model\":\"m\",\"options\":\"{}\",\"costCredits\":8,\"waivedCredits\":1,\"taskUrls\":[\"http://a\"],\"taskInfo\":\"{}\"}}",
    b"\x01\x2c\0{\"code\":-1,\"message\":\"m\",\"error\":{\"type\":\"t\",\"hint\":\"h\",\"task_id\":\"t1\"}}",
];
const OUTPUTS: [&[u8]; 3] = [
    b"\x01\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x02\0\0\0\x90wS\xde\0\0\0\0IEND\xaeB`\x82",
    b"\0\0\0\0\x18ftypisom\0\0\0\0isommp41\0\0\0\x08moov\0\0\0\x01mdat\0\0\0\0\0\0\0\x10",
    b"\x02RIFF\x24\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0data\0\0\0\0",
];
/// What breaks readers.
#[rustfmt::skip]
const PIECES: [&[u8]; 20] = [
    b"\"", b",", b"\n", b"\r", b"\0", b"{", b"}", b"[", b"]", b":", b"\\u", b"\xff", b"\xEF\xBB\xBF", b"\xed\xa0\x80",
    b"1e999", b"-1", b"18446744073709551616", b"\xff\xff\xff\xff", b"null", b"\x1b[",
];

/// A small generator of its own: the same numbers everywhere (xorshift64*).
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        usize::try_from(self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33).unwrap() % end.max(1)
    }
}

fn broken(seed: &[u8], dice: &mut Dice) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=dice.below(6) {
        let (one, other) = (dice.below(bytes.len() + 1), dice.below(bytes.len() + 1));
        let (from, to) = (one.min(other), one.max(other));
        match dice.below(6) {
            0 => bytes.truncate(one),
            1 => drop(bytes.splice(one..one, PIECES[dice.below(PIECES.len())].iter().copied())),
            2 => drop(bytes.drain(from..to.min(from + 8))),
            3 if one < bytes.len() => bytes[one] = u8::try_from(dice.below(256)).unwrap(),
            4 if one < bytes.len() => bytes[one] ^= 1 << dice.below(8),
            _ => {
                let copy = bytes[from..to].to_vec();
                bytes.splice(one..one, copy);
            }
        }
        bytes.truncate(8192);
    }
    bytes
}

fn hammer(seeds: &[&[u8]], times: usize, entry: fn(&[u8])) {
    let mut dice = Dice(0x9E37_79B9_7F4A_7C15);
    for seed in seeds {
        entry(seed);
        for n in 0..times {
            let bytes = broken(seed, &mut dice);
            let outcome = std::panic::catch_unwind(|| entry(&bytes));
            assert!(outcome.is_ok(), "number {n}: {}", bytes.escape_ascii());
        }
    }
}

#[test]
fn manifests() {
    for entry in [entries::csv, entries::json, entries::jsonl] {
        hammer(&MANIFESTS, 3_000, entry);
    }
}

#[test]
fn configurations() {
    hammer(&[CONFIG], 3_000, entries::config);
}

#[test]
fn the_control_protocol() {
    hammer(&CONTROL, 10_000, entries::control);
}

#[test]
fn answers_of_the_service() {
    hammer(&ANSWERS, 10_000, entries::answers);
}

#[test]
fn downloads() {
    hammer(&OUTPUTS, 1_000, entries::outputs);
}
