//! The matrix of a JSON manifest: axes with their values, and the combinations of them for which jobs are made.

use std::collections::{BTreeMap, HashSet};

use serde_json::Value;

use crate::domain::diagnostic::{Diagnostic, Diagnostics};

use super::duplicate_keys::UniqueNames;
use super::matrix_table::{self, AxisValue, Tables, shown_value};
use super::messages::{nearest, quoted, shortened};
use super::spanned::{Key, Shape, Spanned};

/// Names in a matrix that are no axes.
const RULES: &[&str] = &["zip", "include", "exclude"];

/// Most combinations that are looked at, of which only some may make a row.
const COMBINATIONS_MAX: u64 = 10_000_000;

/// One combination: the place of a value in each axis; nothing for an axis that an `include` leaves out.
pub(super) type Combination = Vec<Option<usize>>;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Matrix {
    axes: Vec<Axis>,
    /// Axes that go on together, in the order of their first one. The first changes most slowly.
    groups: Vec<Vec<usize>>,
    /// What a combination must not be: values of some axes.
    excluded: Vec<Vec<(usize, Value)>>,
    included: Vec<Combination>,
    /// Products of the lengths of all groups.
    products: u64,
}

/// What changes from combination to combination, by name.
#[derive(Debug)]
pub(super) struct Axis {
    pub name: String,
    /// First its own, then what `include` brings.
    pub values: Vec<AxisValue>,
    own: usize,
}

impl Matrix {
    /// Reads `{"AXIS": [...], "AXIS": "TABLE.csv", "zip", "include", "exclude"}`.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub(super) fn read(object: Spanned<'_>, tables: &mut Tables<'_, '_>) -> Result<Matrix, Vec<Diagnostic>> {
        let mut problems = Diagnostics::default();
        let mut axes: Vec<Axis> = Vec::new();
        let mut rules = BTreeMap::new();
        let mut given = UniqueNames::default();
        if object.shape() != Shape::Object {
            return Err(vec![object.is_not("an object of axes").in_field("matrix")]);
        }
        let walked = object.entries(&mut |key, value| {
            let field = format!("matrix.{}", key.name);
            if let Err(problem) = given.first(key.name.clone(), &field, key.at) {
                return problems.push(problem);
            }
            if let Some(rule) = RULES.iter().find(|rule| **rule == key.name) {
                rules.insert(*rule, value);
            } else {
                match axis(&key, value, tables) {
                    Ok(axis) => axes.push(axis),
                    Err(problem) => problems.push(problem),
                }
            }
        });
        if let Err(problem) = walked {
            problems.push(problem);
        }
        if axes.is_empty() && problems.is_empty() {
            let message = "there is no axis, expected at least one: \"locale\": [\"en\", \"de\"], or a table \
                           \"product\": \"products.csv\"";
            problems.push(Diagnostic::at(object.at, message).in_field("matrix"));
        }
        problems.finish()?;
        let mut matrix = Matrix {
            groups: (0..axes.len()).map(|axis| vec![axis]).collect(),
            axes,
            excluded: Vec::new(),
            included: Vec::new(),
            products: 0,
        };
        let mut problems = Diagnostics::default();
        for (rule, value) in rules {
            let read = match rule {
                "zip" => matrix.zip(value),
                "exclude" => matrix.exclude(value),
                _ => matrix.include(value),
            };
            if let Err(problem) = read {
                let field = format!("matrix.{rule}");
                problems.push(if problem.field.is_some() { problem } else { problem.in_field(field) });
            }
        }
        let lengths =
            matrix.groups.iter().filter_map(|group| group.first()).map(|axis| matrix.axes[*axis].own);
        let products = lengths.map(|length| length as u64).try_fold(1_u64, u64::checked_mul);
        match products.filter(|products| *products <= COMBINATIONS_MAX) {
            Some(products) => matrix.products = products,
            None => {
                let message = format!("the axes have more than {COMBINATIONS_MAX} combinations");
                let hint = "split the manifest, or put axes that go together into \"zip\"";
                problems.push(Diagnostic::at(object.at, message).in_field("matrix").hint(hint));
            }
        }
        problems.finish().map(|_| matrix)
    }

    pub(super) fn axes(&self) -> &[Axis] {
        &self.axes
    }

    /// How many numbers of combinations there are, of which some are excluded.
    pub(super) fn combinations(&self) -> u64 {
        self.products + self.included.len() as u64
    }

    /// The combination of a number; nothing where it is excluded. An included one stays, whatever is excluded.
    pub(super) fn combination(&self, number: u64) -> Option<Combination> {
        if let Some(included) = number.checked_sub(self.products) {
            return self.included.get(usize::try_from(included).ok()?).cloned();
        }
        let mut combination = vec![None; self.axes.len()];
        let mut rest = number;
        for group in self.groups.iter().rev() {
            let length = group.first().map_or(1, |axis| self.axes[*axis].own) as u64;
            let at = usize::try_from(rest % length).ok()?;
            group.iter().for_each(|axis| combination[*axis] = Some(at));
            rest /= length;
        }
        let is_excluded = |excluded: &Vec<(usize, Value)>| {
            excluded.iter().all(|(axis, wanted)| {
                self.value(*axis, &combination).is_some_and(|found| agrees(&found.value, wanted))
            })
        };
        (!self.excluded.iter().any(is_excluded)).then_some(combination)
    }

    /// The value of an axis in a combination.
    pub(super) fn value(&self, axis: usize, combination: &Combination) -> Option<&AxisValue> {
        self.axes.get(axis)?.values.get(combination.get(axis).copied().flatten()?)
    }

    /// `locale "de", product.sku "A-1"`: a combination as messages name it, by some of its axes.
    pub(super) fn shown(&self, axes: &[usize], combination: &Combination) -> String {
        let shown = axes.iter().filter_map(|axis| {
            let value = self.value(*axis, combination)?;
            Some(format!("{}{}", self.axes[*axis].name, value.shown))
        });
        shown.collect::<Vec<_>>().join(", ")
    }

    fn axis_named(&self, key: &str) -> Result<usize, String> {
        let names = || self.axes.iter().map(|axis| axis.name.as_str());
        names().position(|name| name == key).ok_or_else(|| match nearest(key, names()) {
            Some(near) => format!("unknown axis {}; did you mean \"{near}\"?", quoted(key)),
            None => format!(
                "unknown axis {}, expected one of {}",
                quoted(key),
                names().collect::<Vec<_>>().join(", ")
            ),
        })
    }

    /// `["product", "locale"]`, or a list of such lists.
    fn zip(&mut self, value: Spanned<'_>) -> Result<(), Diagnostic> {
        let accepted = "a list of axes that go on together, such as [\"product\", \"locale\"]";
        let Value::Array(found) = value.value()? else { return Err(value.is_not(accepted)) };
        let lists: Vec<Vec<Value>> = match found.iter().all(Value::is_string) {
            true if found.is_empty() => return Ok(()),
            true => vec![found],
            false => found
                .into_iter()
                .map(|list| match list {
                    Value::Array(names) => Ok(names),
                    _ => Err(value.is_not(accepted)),
                })
                .collect::<Result<_, _>>()?,
        };
        for names in lists {
            let names = names.iter().map(|name| name.as_str().ok_or_else(|| value.is_not(accepted)));
            let names = names.collect::<Result<Vec<_>, _>>()?;
            let group: Vec<usize> = names
                .iter()
                .map(|name| self.axis_named(name))
                .collect::<Result<_, _>>()
                .map_err(|message| Diagnostic::at(value.at, message))?;
            let Some((first, others)) = group.split_first() else { return Err(value.is_not(accepted)) };
            for other in others {
                let (one, two) = (&self.axes[*first], &self.axes[*other]);
                if one.own != two.own {
                    let message = format!(
                        "{} has {} values and {} has {}; axes that go on together have as many",
                        one.name, one.own, two.name, two.own
                    );
                    return Err(Diagnostic::at(value.at, message));
                }
            }
            let is_single = |axis: &usize| self.groups.iter().any(|group| group == &[*axis]);
            if !group.iter().all(is_single) || group.iter().collect::<HashSet<_>>().len() < group.len() {
                return Err(Diagnostic::at(
                    value.at,
                    "an axis is named twice; name each axis once, in one list",
                ));
            }
            let place = group.iter().min().copied();
            self.groups
                .retain(|others| !others.iter().any(|axis| group.contains(axis) && Some(*axis) != place));
            if let Some(here) = self.groups.iter_mut().find(|other| other.first().copied() == place) {
                *here = group;
            }
        }
        Ok(())
    }

    /// A list of objects: values, or parts of values, of some axes.
    fn exclude(&mut self, value: Spanned<'_>) -> Result<(), Diagnostic> {
        for found in objects(value)? {
            let entries = found.into_iter().map(|(name, wanted)| {
                let axis = self.axis_named(&name).map_err(|message| Diagnostic::at(value.at, message))?;
                if !self.axes[axis].values.iter().any(|found| agrees(&found.value, &wanted)) {
                    let message = format!("no value of {name} is {}", shortened(&wanted.to_string()));
                    return Err(Diagnostic::at(value.at, message));
                }
                Ok((axis, wanted))
            });
            let excluded: Vec<_> = entries.collect::<Result<_, _>>()?;
            if excluded.is_empty() {
                return Err(Diagnostic::at(value.at, "an empty object would exclude everything"));
            }
            self.excluded.push(excluded);
        }
        Ok(())
    }

    /// A list of objects: further combinations, with the value of each axis that it has.
    fn include(&mut self, value: Spanned<'_>) -> Result<(), Diagnostic> {
        for found in objects(value)? {
            let mut combination = vec![None; self.axes.len()];
            for (name, value_of_axis) in found {
                let axis = self.axis_named(&name).map_err(|message| Diagnostic::at(value.at, message))?;
                let axis_values = &mut self.axes[axis].values;
                let known = axis_values.iter().position(|known| known.value == value_of_axis);
                combination[axis] = Some(known.unwrap_or_else(|| {
                    let shown = shown_value(&value_of_axis, axis_values.len());
                    axis_values.push(AxisValue { value: value_of_axis, shown });
                    axis_values.len() - 1
                }));
            }
            if combination.iter().all(Option::is_none) {
                return Err(Diagnostic::at(value.at, "an empty object includes nothing"));
            }
            self.included.push(combination);
        }
        Ok(())
    }
}

fn objects(value: Spanned<'_>) -> Result<Vec<serde_json::Map<String, Value>>, Diagnostic> {
    let accepted = "a list of objects with values of axes, such as [{\"locale\": \"de\"}]";
    let Value::Array(found) = value.value()? else { return Err(value.is_not(accepted)) };
    let object = |found| match found {
        Value::Object(object) => Ok(object),
        _ => Err(value.is_not(accepted)),
    };
    found.into_iter().map(object).collect()
}

fn axis(key: &Key, value: Spanned<'_>, tables: &mut Tables<'_, '_>) -> Result<Axis, Diagnostic> {
    let field = format!("matrix.{}", shortened(&key.name));
    let is_name = |name: &str| {
        let mut characters = name.chars();
        characters.next().is_some_and(|first| first.is_ascii_alphabetic())
            && characters.all(|character| character.is_ascii_alphanumeric() || character == '_')
    };
    if !is_name(&key.name) {
        let message =
            "an axis is named by letters, digits and underscores, a letter first, as templates name it";
        return Err(Diagnostic::at(key.at, message).in_field(field));
    }
    if let Some(near) = nearest(&key.name, RULES.iter().copied()) {
        let message = format!("did you mean \"{near}\"? An axis must have another name");
        return Err(Diagnostic::at(key.at, message).in_field(field));
    }
    let values = match value.value().map_err(|problem| problem.in_field(field.as_str()))? {
        Value::Array(values) => {
            let shown =
                values.iter().enumerate().map(|(at, value)| shown_value(value, at)).collect::<Vec<_>>();
            values.into_iter().zip(shown).map(|(value, shown)| AxisValue { value, shown }).collect()
        }
        Value::String(table) => matrix_table::read(&table, value.at, tables).map_err(|problem| {
            Diagnostic { field: Some(field.clone()), position: Some(value.at), ..problem }
        })?,
        _ => {
            return Err(value
                .is_not("a list of values, or the name of a table, such as \"products.csv\"")
                .in_field(field));
        }
    };
    let mut seen = HashSet::new();
    for found in &values {
        if !seen.insert(found.value.to_string()) {
            let message = format!("the value{} is given twice; keep one", found.shown);
            return Err(Diagnostic::at(value.at, message).in_field(field));
        }
    }
    if values.is_empty() {
        return Err(Diagnostic::at(value.at, "there is no value, expected at least one").in_field(field));
    }
    Ok(Axis { name: key.name.clone(), own: values.len(), values })
}

/// Whether a value is the wanted one, or has all fields of it. A table has texts only, so `5` is `"5"`.
fn agrees(found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) => {
            wanted.iter().all(|(name, wanted)| found.get(name).is_some_and(|found| agrees(found, wanted)))
        }
        (Value::String(found), Value::Number(wanted)) => *found == wanted.to_string(),
        (Value::Number(found), Value::String(wanted)) => found.to_string() == *wanted,
        _ => found == wanted,
    }
}
