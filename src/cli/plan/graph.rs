//! `plan --graph`: the rows and what they take from one another, in the DOT language of Graphviz.

use std::io::{self, Write};

use crate::cli::plan::plan_row::PlanRow;
use crate::domain::job_label::label;
use crate::domain::row_verdict::RowVerdict;

/// Writes a directed graph: a node for each job, an edge from each output to the job that takes it.
pub(super) struct GraphWriter<'w, W> {
    out: &'w mut W,
}

impl<'w, W: Write> GraphWriter<'w, W> {
    pub(super) fn begin(out: &'w mut W) -> io::Result<GraphWriter<'w, W>> {
        writeln!(out, "digraph plan {{")?;
        writeln!(out, "  rankdir=LR;")?;
        writeln!(out, "  node [shape=box, fontname=\"sans-serif\"];")?;
        Ok(GraphWriter { out })
    }

    /// A job, and what it takes. Rows that are not valid have no place in the graph; `plan` lists them.
    pub(super) fn add_row(&mut self, row: &PlanRow<'_>) -> io::Result<()> {
        let (Some(id), Some(order), Some(job)) = (row.id, row.order, row.job) else { return Ok(()) };
        let batch = row.batch.map_or(String::new(), |batch| format!("{batch}/"));
        let node = |label: &str| quoted(&format!("{batch}{label}"));
        let what = [order.kind.name(), order.model.as_deref().unwrap_or_default()].join(" ");
        let cost = match row.verdict {
            verdict if verdict.is_to_be_spent() => row.credits.to_string(),
            verdict => verdict.name().to_owned(),
        };
        let text = quoted(&format!("{id}\n{}\n{cost}", what.trim_end()));
        let style = if row.verdict == RowVerdict::Done { ", style=dashed" } else { "" };
        writeln!(self.out, "  {} [label={text}{style}];", node(id))?;
        for input in order.inputs_by_row() {
            // Of several takes the chosen one is taken: each of them may be it.
            let (first, last) = input.variation.map_or((1, input.takes), |variation| (variation, variation));
            let (output, is_open) = (input.output, last > first);
            let other = input.batch.as_ref().map(|batch| format!("{}/", batch.name));
            let of = other.as_deref().unwrap_or(&batch);
            for variation in first..=last {
                let from = label(Some(&input.row), variation, || "", job);
                let number = (output > 1).then(|| format!("label={}", quoted(&format!("output {output}"))));
                let style = is_open.then(|| "style=dotted".to_owned());
                let attributes = number.into_iter().chain(style).collect::<Vec<_>>().join(", ");
                let attributes =
                    if attributes.is_empty() { String::new() } else { format!(" [{attributes}]") };
                writeln!(self.out, "  {} -> {}{attributes};", quoted(&format!("{of}{from}")), node(id))?;
            }
        }
        Ok(())
    }

    pub(super) fn finish(self) -> io::Result<()> {
        writeln!(self.out, "}}")
    }
}

/// A text as DOT quotes it: a line break is an escape of its own.
fn quoted(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("\"{escaped}\"")
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn a_text_cannot_leave_its_quotes() {
        assert_eq!(quoted("a \"b\" \\"), r#""a \"b\" \\""#);
        assert_eq!(quoted("a\nb"), r#""a\nb""#);
    }
}
