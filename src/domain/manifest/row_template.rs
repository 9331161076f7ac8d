//! Templates in the values of a job: `{{ product.name }}`, filled with one combination of the matrix.
//!
//! They are strict: a name that is not there is an error and never an empty text. They know neither files nor clock
//! nor chance, so a combination gives the same text on every machine.

use std::collections::BTreeSet;

use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior};

use crate::domain::diagnostic::Diagnostic;

use super::matrix::{Axis, Combination, Matrix};
use super::messages::{nearest, quoted};
use super::template_check::{self, AxisDepths, FILTERS_LEFT_OUT, FUNCTIONS_LEFT_OUT, TemplateFault};

/// Work that one text may take: about 6 MB of text, or 100,000 steps.
const FUEL: u64 = 100_000;

/// Whether a text is a template.
pub(super) fn is_template(text: &str) -> bool {
    ["{{", "{%", "{#"].iter().any(|begin| text.contains(begin))
}

/// Fills templates.
#[derive(Debug)]
pub(super) struct Templates {
    environment: Environment<'static>,
    /// Of each axis.
    depths: Vec<AxisDepths>,
}

impl Templates {
    /// For the axes of that matrix.
    pub(super) fn new(matrix: &Matrix) -> Templates {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.set_fuel(Some(FUEL));
        // Errors tell which part of the text they are about.
        environment.set_debug(true);
        FILTERS_LEFT_OUT.iter().for_each(|name| environment.remove_filter(name));
        FUNCTIONS_LEFT_OUT.iter().for_each(|name| environment.remove_global(name));
        let depths = |axis: &Axis| AxisDepths::of(axis.values.iter().map(|value| &value.value));
        Templates { environment, depths: matrix.axes().iter().map(depths).collect() }
    }

    /// The axes that a template names. No other template may be filled.
    ///
    /// # Errors
    /// When it is no template, names something that is no axis, or could take too much work.
    pub(super) fn axes_of(&self, text: &str, matrix: &Matrix) -> Result<BTreeSet<usize>, Diagnostic> {
        let names = || matrix.axes().iter().map(|axis| axis.name.as_str());
        template_check::check(text, names().zip(&self.depths)).map_err(|fault| match fault {
            TemplateFault::Unknown(name) => unknown_name(&name, names()),
            fault => refused(text, fault),
        })?;
        let template = self.environment.template_from_str(text).map_err(|error| problem(text, &error, ""))?;
        let mut axes = BTreeSet::new();
        for name in template.undeclared_variables(false) {
            match names().position(|axis| axis == name) {
                Some(axis) => {
                    axes.insert(axis);
                }
                None if self.environment.globals().any(|(global, _)| global == name) => {}
                None => return Err(unknown_name(&name, names())),
            }
        }
        Ok(axes)
    }

    /// The text for a combination.
    ///
    /// # Errors
    /// When it names what the combination does not have, or takes too much work.
    pub(super) fn fill(
        &self,
        text: &str,
        matrix: &Matrix,
        combination: &Combination,
    ) -> Result<String, Diagnostic> {
        let template = self.environment.template_from_str(text).map_err(|error| problem(text, &error, ""))?;
        let values = matrix.axes().iter().enumerate().filter_map(|(axis, found)| {
            let value = matrix.value(axis, combination)?;
            Some((found.name.as_str(), minijinja::Value::from(Serde(&value.value))))
        });
        let context = minijinja::Value::from_pairs(values);
        template.render(context).map_err(|error| problem(text, &error, &names(matrix, combination)))
    }
}

/// What names there are: `product.name, product.sku, locale`.
fn names(matrix: &Matrix, combination: &Combination) -> String {
    let of_axis = |(axis, found): (usize, &Axis)| {
        let fields = matrix.value(axis, combination).and_then(|value| value.value.as_object());
        match fields {
            Some(fields) => fields.keys().map(|field| format!("{}.{field}", found.name)).collect(),
            None => vec![found.name.clone()],
        }
    };
    matrix.axes().iter().enumerate().flat_map(of_axis).collect::<Vec<_>>().join(", ")
}

/// It names what is no axis; `names` are those of the axes.
fn unknown_name<'a>(name: &str, names: impl Iterator<Item = &'a str> + Clone) -> Diagnostic {
    Diagnostic::new(match nearest(name, names.clone()) {
        Some(near) => format!("unknown name {}; did you mean \"{near}\"?", quoted(name)),
        None => format!(
            "unknown name {}, expected an axis of the matrix: {}",
            quoted(name),
            names.collect::<Vec<_>>().join(", ")
        ),
    })
}

fn refused(text: &str, fault: TemplateFault) -> Diagnostic {
    match fault {
        TemplateFault::Syntax(error) => problem(text, &error, ""),
        TemplateFault::TooLong => {
            Diagnostic::new("the template needs too many steps: it has more than 1,000 words and signs")
                .hint("put what tells the rows apart into a table")
        }
        TemplateFault::Unknown(name) => Diagnostic::new(format!("unknown name {}", quoted(&name))),
        TemplateFault::Nests(part) => {
            let part = quoted(text.get(part).unwrap_or(text));
            let message = format!(
                "{part} could need too many steps: it puts lists or objects together, or compares them"
            );
            Diagnostic::new(message)
                .hint("take single values of them: \"a.x|int + b.x|int\", \"a.x ~ b.x\", \"[a.x, b.x]\"")
        }
    }
}

fn problem(text: &str, error: &Error, names: &str) -> Diagnostic {
    let part = error.range().and_then(|range| text.get(range)).filter(|part| !part.is_empty());
    let part = part.map(|part| format!("{} ", quoted(part))).unwrap_or_default();
    match error.kind() {
        ErrorKind::UndefinedError => Diagnostic::new(format!("{part}is not defined for this combination"))
            .hint(format!("names: {names}")),
        ErrorKind::OutOfFuel => {
            Diagnostic::new(format!("{part}the template needs too many steps or makes too much text"))
        }
        ErrorKind::SyntaxError => {
            let detail = error.detail().unwrap_or("it cannot be read");
            Diagnostic::new(format!("{} is not a valid template: {detail}", quoted(text)))
        }
        _ => Diagnostic::new(format!(
            "{part}cannot be filled: {}",
            error.detail().map_or_else(|| error.kind().to_string(), str::to_owned)
        )),
    }
}
