//! From OpenMetrics, which the crate writes, to Prometheus' own text format, which everything reads.
//!
//! The two differ in little: OpenMetrics names a counter's family without `_total`, and has lines for
//! units and for the end, which the older format takes for comments.

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

pub(super) fn render(registry: &Registry) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = encode(&mut text, registry);
    classic(&text)
}

/// Names the families of counters as their series are named.
fn classic(open: &str) -> String {
    let mut text = String::with_capacity(open.len() + 256);
    let mut lines = open.lines().peekable();
    while let Some(line) = lines.next() {
        if line == "# EOF" || line.starts_with("# UNIT ") {
            continue;
        }
        let typed = if line.starts_with("# HELP ") { lines.peek().copied() } else { Some(line) };
        let counter = typed.and_then(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter"));
        match counter {
            Some(name) => text.push_str(&line.replacen(name, &format!("{name}_total"), 1)),
            None => text.push_str(line),
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_named_as_their_series() {
        let open = "# HELP a_requests Requests.\n# TYPE a_requests counter\na_requests_total{x=\"1\"} 5\n\
                    # HELP a_room Room.\n# TYPE a_room gauge\n# UNIT a_room credits\na_room 1\n# EOF\n";
        let classic = classic(open);
        assert_eq!(
            classic,
            "# HELP a_requests_total Requests.\n# TYPE a_requests_total counter\na_requests_total{x=\"1\"} 5\n\
             # HELP a_room Room.\n# TYPE a_room gauge\na_room 1\n"
        );
    }
}
