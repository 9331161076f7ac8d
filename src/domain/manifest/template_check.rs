//! What a template may do beyond its fuel. Fuel counts steps and text, but neither how deep a value is nested nor what one
//! step costs: a list that is put into itself again and again overflows the stack, or takes for ever to be compared.
//!
//! So a template is short, and puts no list or object of which it does not know the items into another, beside another or
//! against another. Nothing then becomes larger or much deeper than the values of the axes, whatever it does with them.

use std::cell::Cell;
use std::collections::HashMap;
use std::ops::Range;

use minijinja::Error;
use minijinja::machinery::ast::{BinOpKind, Call, CallArg, CompareOpKind, Expr, Filter, Stmt};
use minijinja::machinery::{Span, Token, parse, tokenize};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Value, ValueKind};

/// Most words and signs of one template, its plain text not counted: they bound how deep its own structure is, and how
/// many steps can follow each other.
const TOKENS_MAX: usize = 1_000;

/// Filters and functions that make lists of lists, or objects. They are not offered.
pub(super) const FILTERS_LEFT_OUT: &[&str] = &["batch", "chain", "groupby", "slice", "zip"];
pub(super) const FUNCTIONS_LEFT_OUT: &[&str] = &["dict", "namespace"];

/// How deep a value is nested at most: 0 for a text or a number, 1 for a list of these.
type Depth = u8;

/// How deep the values of an axis are.
#[derive(Debug)]
pub(super) struct AxisDepths {
    whole: Depth,
    /// Those of the fields of its objects.
    fields: HashMap<String, Depth>,
}

/// Whatever it is.
const ANY: Depth = Depth::MAX;

/// Why a template is not filled.
#[derive(Debug)]
pub(super) enum TemplateFault {
    Syntax(Error),
    TooLong,
    /// This part of it puts lists or objects together, or compares them.
    Nests(Range<usize>),
    /// It names this, of which nothing is known, where that could be a list or an object.
    Unknown(String),
}

/// Checks a template against the axes that it may name, before it is compiled: what is constant in it is worked out by that.
///
/// # Errors
/// When it is no template, or could take more work than its fuel tells.
pub(super) fn check<'a>(
    text: &'a str,
    axes: impl Iterator<Item = (&'a str, &'a AxisDepths)>,
) -> Result<(), TemplateFault> {
    if tokenize(text, false, SyntaxConfig::default()).take(TOKENS_MAX + 1).count() > TOKENS_MAX {
        return Err(TemplateFault::TooLong);
    }
    let template = parse(text, "template", SyntaxConfig::default()).map_err(TemplateFault::Syntax)?;
    let mut checker = Checker { axes: axes.collect(), names: HashMap::new(), unknown: Cell::new(None) };
    checker.statement(&template).map_err(|span| {
        let offset = |offset: u32| usize::try_from(offset).unwrap_or(usize::MAX);
        match checker.unknown.get() {
            Some(name) => TemplateFault::Unknown(name.to_owned()),
            None => TemplateFault::Nests(offset(span.start_offset)..offset(span.end_offset)),
        }
    })
}

/// Whether a template makes a text that is not blank whatever its values are.
pub(super) fn is_never_empty(text: &str) -> bool {
    let mut has_text = false;
    for token in tokenize(text, false, SyntaxConfig::default()) {
        match token {
            Ok((Token::TemplateData(text), _)) => has_text |= !text.trim().is_empty(),
            Ok((Token::BlockStart, _)) | Err(_) => return false,
            Ok(_) => {}
        }
    }
    has_text
}

impl AxisDepths {
    pub(super) fn of<'a>(values: impl Iterator<Item = &'a serde_json::Value>) -> AxisDepths {
        let mut depths = AxisDepths { whole: 0, fields: HashMap::new() };
        for value in values {
            depths.whole = depths.whole.max(depth_of_json(value));
            for (field, value) in value.as_object().into_iter().flatten() {
                let deepest = depths.fields.entry(field.clone()).or_insert(0);
                *deepest = depth_of_json(value).max(*deepest);
            }
        }
        depths
    }
}

fn depth_of_json(value: &serde_json::Value) -> Depth {
    use serde_json::Value;
    match value {
        Value::Array(items) => around(items.iter().map(depth_of_json).max().unwrap_or(0)),
        Value::Object(fields) => around(fields.values().map(depth_of_json).max().unwrap_or(0)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// The depth of a list of such values.
fn around(depth: Depth) -> Depth {
    depth.saturating_add(1)
}

/// The depth of what is in such a list.
fn within(depth: Depth) -> Depth {
    if depth == ANY { ANY } else { depth.saturating_sub(1) }
}

/// Follows a template from its beginning to its end. No value of a later statement reaches an earlier one: the names
/// that a loop sets are forgotten with each of its rounds.
struct Checker<'t> {
    axes: HashMap<&'t str, &'t AxisDepths>,
    /// The deepest value that is anywhere given to each name.
    names: HashMap<&'t str, Depth>,
    /// The last name that is neither of an axis nor given by the template.
    unknown: Cell<Option<&'t str>>,
}

/// The span of what is refused.
type Checked<T> = Result<T, Span>;

impl<'t> Checker<'t> {
    fn all(&mut self, statements: &[Stmt<'t>]) -> Checked<()> {
        statements.iter().try_for_each(|statement| self.statement(statement))
    }

    fn statement(&mut self, statement: &Stmt<'t>) -> Checked<()> {
        match statement {
            Stmt::Template(template) => self.all(&template.children),
            Stmt::EmitRaw(_) => Ok(()),
            Stmt::EmitExpr(emitted) => self.depth(&emitted.expr).map(|_| ()),
            Stmt::ForLoop(found) => {
                if found.recursive {
                    return Err(found.span());
                }
                let items = within(self.depth(&found.iter)?);
                self.assign(&found.target, items);
                found.filter_expr.as_ref().map(|filter| self.depth(filter)).transpose()?;
                self.all(&found.body)?;
                self.all(&found.else_body)
            }
            Stmt::IfCond(condition) => {
                self.depth(&condition.expr)?;
                self.all(&condition.true_body)?;
                self.all(&condition.false_body)
            }
            Stmt::WithBlock(block) => {
                for (target, value) in &block.assignments {
                    let depth = self.depth(value)?;
                    self.assign(target, depth);
                }
                self.all(&block.body)
            }
            Stmt::Set(set) => {
                let depth = self.depth(&set.expr)?;
                self.assign(&set.target, depth);
                Ok(())
            }
            Stmt::SetBlock(set) => {
                self.all(&set.body)?;
                let depth = set.filter.as_ref().map_or(Ok(0), |filter| self.depth(filter))?;
                self.assign(&set.target, depth);
                Ok(())
            }
            Stmt::AutoEscape(block) => {
                self.depth(&block.enabled)?;
                self.all(&block.body)
            }
            Stmt::FilterBlock(block) => {
                self.all(&block.body)?;
                self.depth(&block.filter).map(|_| ())
            }
            Stmt::Do(statement) => self.call(&statement.call).map(|_| ()),
        }
    }

    /// Gives a name a value, or several names the values of a list.
    fn assign(&mut self, target: &Expr<'t>, depth: Depth) {
        match target {
            Expr::Var(name) => {
                let known = self.names.entry(name.id).or_insert(0);
                *known = depth.max(*known);
            }
            Expr::List(list) => list.items.iter().for_each(|item| self.assign(item, within(depth))),
            Expr::Tuple(tuple) => tuple.items.iter().for_each(|item| self.assign(item, within(depth))),
            // Only an attribute of a namespace, of which there is none.
            _ => {}
        }
    }

    fn depth(&self, expression: &Expr<'t>) -> Checked<Depth> {
        match expression {
            Expr::Var(name) => {
                let axis = self.axes.get(name.id).map(|axis| axis.whole);
                let depth = self.names.get(name.id).copied().max(axis);
                Ok(depth.unwrap_or_else(|| if name.id == "loop" { ANY } else { self.unknown(name.id) }))
            }
            Expr::Const(constant) => Ok(depth_of(&constant.value)),
            Expr::List(list) => self.depth_around(&list.items),
            Expr::Tuple(tuple) => self.depth_around(&tuple.items),
            Expr::Map(map) => Ok(self.depth_around(&map.keys)?.max(self.depth_around(&map.values)?)),
            Expr::Slice(slice) => {
                for bound in [&slice.start, &slice.stop, &slice.step].into_iter().flatten() {
                    self.depth(bound)?;
                }
                self.depth(&slice.expr)
            }
            Expr::UnaryOp(operation) => self.depth(&operation.expr).map(|_| 0),
            Expr::BinOp(operation) => {
                let (left, right) = (&operation.left, &operation.right);
                let depth = self.depth(left)?.max(self.depth(right)?);
                match operation.op {
                    BinOpKind::ScAnd | BinOpKind::ScOr => Ok(depth),
                    BinOpKind::Add => self.one_is_plain(left, right, expression).map(|()| depth),
                    // A list is repeated as often as a number says, and none of that is counted.
                    BinOpKind::Mul if depth > 0 => Err(expression.span()),
                    BinOpKind::Eq
                    | BinOpKind::Ne
                    | BinOpKind::Lt
                    | BinOpKind::Lte
                    | BinOpKind::Gt
                    | BinOpKind::Gte
                    | BinOpKind::In => self.one_is_plain(left, right, expression).map(|()| 0),
                    BinOpKind::Sub
                    | BinOpKind::Mul
                    | BinOpKind::Div
                    | BinOpKind::FloorDiv
                    | BinOpKind::Rem
                    | BinOpKind::Pow
                    | BinOpKind::Concat => Ok(0),
                }
            }
            Expr::Compare(comparison) => {
                let mut left = &comparison.expr;
                self.depth(left)?;
                for operation in &comparison.ops {
                    self.depth(&operation.expr)?;
                    match operation.op {
                        CompareOpKind::Eq
                        | CompareOpKind::Ne
                        | CompareOpKind::Lt
                        | CompareOpKind::Lte
                        | CompareOpKind::Gt
                        | CompareOpKind::Gte
                        | CompareOpKind::In
                        | CompareOpKind::NotIn => self.one_is_plain(left, &operation.expr, expression)?,
                    }
                    left = &operation.expr;
                }
                Ok(0)
            }
            Expr::IfExpr(choice) => {
                self.depth(&choice.test_expr)?;
                let other = choice.false_expr.as_ref().map_or(Ok(0), |other| self.depth(other))?;
                Ok(self.depth(&choice.true_expr)?.max(other))
            }
            Expr::Filter(filter) => self.filter(filter),
            Expr::Test(test) => {
                self.depth(&test.expr)?;
                self.arguments(&test.args).map(|_| 0)
            }
            Expr::GetAttr(attribute) => match &attribute.expr {
                Expr::Var(name) if !self.names.contains_key(name.id) => {
                    Ok(match (self.axes.get(name.id), name.id, attribute.name) {
                        (Some(axis), _, field) => axis.fields.get(field).copied().unwrap_or(0),
                        (None, "loop", "previtem" | "nextitem") => ANY,
                        (None, "loop", _) => 0,
                        (None, name, _) => self.unknown(name),
                    })
                }
                object => self.depth(object).map(within),
            },
            Expr::GetItem(item) => {
                self.depth(&item.subscript_expr)?;
                self.depth(&item.expr).map(within)
            }
            Expr::Call(call) => self.call(call),
        }
    }

    /// Notes that a template names this, of which nothing is known.
    fn unknown(&self, name: &'t str) -> Depth {
        self.unknown.set(Some(name));
        ANY
    }

    /// The depth of a list of these, of which each is a text, a number or constant.
    fn depth_around(&self, items: &[Expr<'t>]) -> Checked<Depth> {
        items.iter().try_fold(1, |deepest, item| Ok(deepest.max(around(self.plain(item)?))))
    }

    /// The depth of what is a text, a number or constant.
    fn plain(&self, expression: &Expr<'t>) -> Checked<Depth> {
        let depth = self.depth(expression)?;
        if depth == 0 || is_constant(expression) { Ok(depth) } else { Err(expression.span()) }
    }

    fn one_is_plain(&self, left: &Expr<'t>, right: &Expr<'t>, both: &Expr<'t>) -> Checked<()> {
        self.plain(left).or_else(|_| self.plain(right)).map(|_| ()).map_err(|_| both.span())
    }

    fn call(&self, call: &Call<'t>) -> Checked<Depth> {
        let arguments = self.arguments(&call.args)?;
        Ok(match &call.expr {
            Expr::Var(name) if name.id == "range" => 1,
            Expr::GetAttr(attribute) if matches!(attribute.name, "cycle" | "changed") => arguments,
            _ => ANY,
        })
    }

    /// The deepest of the arguments, of which each is a text, a number or constant.
    fn arguments(&self, arguments: &[CallArg<'t>]) -> Checked<Depth> {
        deepest(arguments, |value| self.plain(value))
    }

    fn filter(&self, filter: &Filter<'t>) -> Checked<Depth> {
        let depth = filter.expr.as_ref().map_or(Ok(0), |expression| self.depth(expression))?;
        let takes_one = matches!(filter.name, "default" | "d");
        let arguments = if takes_one {
            deepest(&filter.args, |value| self.depth(value))?
        } else {
            self.arguments(&filter.args)?
        };
        Ok(match filter.name {
            "abs" | "bool" | "capitalize" | "count" | "e" | "escape" | "float" | "format" | "indent"
            | "int" | "join" | "length" | "lower" | "pprint" | "replace" | "round" | "safe" | "string"
            | "title" | "trim" | "upper" => 0,
            "default" | "d" => depth.max(arguments),
            "attr" | "first" | "last" | "max" | "min" => within(depth),
            "sum" => within(depth).max(arguments),
            "dictsort" | "items" => around(depth).max(2),
            "lines" | "split" => 1,
            "list" | "reject" | "rejectattr" | "reverse" | "select" | "selectattr" | "sort" | "unique" => {
                depth.max(1)
            }
            _ => ANY,
        })
    }
}

/// The deepest of the arguments.
fn deepest<'t>(arguments: &[CallArg<'t>], depth: impl Fn(&Expr<'t>) -> Checked<Depth>) -> Checked<Depth> {
    arguments.iter().try_fold(0, |deepest, argument| match argument {
        CallArg::Pos(value) | CallArg::Kwarg(_, value) => Ok(deepest.max(depth(value)?)),
        CallArg::PosSplat(value) | CallArg::KwargSplat(value) => Err(value.span()),
    })
}

fn depth_of(value: &Value) -> Depth {
    match value.kind() {
        ValueKind::Seq | ValueKind::Iterable | ValueKind::Map => {
            let items = value.try_iter().into_iter().flatten();
            let of_item = |item: Value| {
                let of_value = value.get_item(&item).ok().filter(|_| value.kind() == ValueKind::Map);
                depth_of(&item).max(of_value.map_or(0, |value| depth_of(&value)))
            };
            around(items.map(of_item).max().unwrap_or(0))
        }
        _ => 0,
    }
}

fn is_constant(expression: &Expr<'_>) -> bool {
    match expression {
        Expr::Const(_) => true,
        Expr::List(list) => list.items.iter().all(is_constant),
        Expr::Tuple(tuple) => tuple.items.iter().all(is_constant),
        Expr::Map(map) => map.keys.iter().chain(&map.values).all(is_constant),
        _ => false,
    }
}
