//! Which waiting jobs are alike: what keeps one of a class from being sent keeps all of it.
//!
//! Each class of a batch waits in a queue of its own, so that rows that fit no budget, or have no free slot, stand in
//! nobody's way but their own. The number of classes is bounded: a manifest with more is divided more coarsely.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::domain::credits::Credits;
use crate::domain::job::Order;
use crate::domain::request::Kind;

/// Most classes that the rows of one manifest are divided into, unless they have more priorities.
pub const CLASSES_MAX: usize = 128;

/// The name of a class among those of its priority: a hash of what its jobs have in common. Two classes that share
/// one share a queue, which costs nothing but order.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct QueueClass(pub u32);

impl QueueClass {
    /// Jobs that need not have anything in common.
    pub const MIXED: QueueClass = QueueClass(0);

    /// Whether its jobs need not have anything in common.
    pub fn is_mixed(&self) -> bool {
        *self == QueueClass::MIXED
    }
}

/// What the jobs of one class have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grain {
    /// Kind, model, price, and how that is computed: alike even when the catalog's prices change.
    Formula,
    /// Kind, model and price.
    Price,
    /// Kind, model, and a price within an eighth.
    NearPrice,
    /// Kind, and a price within a factor of two.
    Magnitude,
    Kind,
    /// Nothing.
    Mixed,
}

impl Grain {
    /// Of the classes of a job, the one at this grain.
    pub fn of(self, classes: &Classes) -> QueueClass {
        let place = Grain::ALL.iter().position(|other| *other == self).unwrap_or_default();
        classes[place]
    }

    /// All of them, the finest first.
    pub const ALL: [Grain; 6] =
        [Grain::Formula, Grain::Price, Grain::NearPrice, Grain::Magnitude, Grain::Kind, Grain::Mixed];

    /// The class of a job.
    pub fn class_of(self, order: &Order) -> QueueClass {
        if self == Grain::Mixed {
            return QueueClass::MIXED;
        }
        let mut hash = Fnv::new();
        hash.add(order.kind.name().as_bytes());
        if self < Grain::Kind {
            // A job without a price is held to other rules than one that is priced.
            hash.add(&[u8::from(order.price.is_some())]);
            hash.add(&self.price_of(order).to_be_bytes());
        }
        if self < Grain::Magnitude {
            hash.add(order.model.as_deref().unwrap_or_default().as_bytes());
        }
        if self == Grain::Formula {
            hash.add(order.formula.as_bytes());
        }
        QueueClass(hash.0.max(1))
    }

    /// A job's price, as exactly as it counts.
    fn price_of(self, order: &Order) -> u64 {
        let price = order.hold().unwrap_or_default().0;
        let kept_bits = match self {
            Grain::Formula | Grain::Price => return price,
            Grain::NearPrice => 3,
            Grain::Magnitude | Grain::Kind | Grain::Mixed => 1,
        };
        let bits = u64::BITS - price.leading_zeros();
        let cut = bits.saturating_sub(kept_bits);
        price >> cut << cut
    }
}

/// FNV-1a, with each part ended, so that `ab, c` is not `a, bc`.
struct Fnv(u32);

impl Fnv {
    fn new() -> Fnv {
        Fnv(0x811c_9dc5)
    }

    fn add(&mut self, part: &[u8]) {
        for byte in part.iter().chain(&[0xff]) {
            self.0 = (self.0 ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
        }
    }
}

/// The classes of a job at every grain, in the order of [`Grain::ALL`].
pub type Classes = [QueueClass; Grain::ALL.len()];

/// Counts the classes that jobs make at each grain.
#[derive(Debug, Clone, Default)]
pub struct Census {
    classes: [BTreeSet<(i8, QueueClass)>; Grain::ALL.len()],
    /// What was counted last: jobs that are alike mostly stand together.
    last: Option<(i8, Classes)>,
}

/// Finds the classes of one job after the other.
#[derive(Debug, Clone, Default)]
pub struct ClassFinder {
    /// The last job, and its classes: the next one is mostly like it.
    last: Option<(ClassTerms, Classes)>,
}

/// All that the classes of a job depend on.
#[derive(Debug, Clone, PartialEq)]
struct ClassTerms {
    kind: Kind,
    priority: i8,
    hold: Option<Credits>,
    is_priced: bool,
    model: Option<String>,
    formula: String,
}

impl ClassTerms {
    fn of(order: &Order) -> ClassTerms {
        ClassTerms {
            kind: order.kind,
            priority: order.priority,
            hold: order.hold(),
            is_priced: order.price.is_some(),
            model: order.model.clone(),
            formula: order.formula.clone(),
        }
    }

    fn are_of(&self, order: &Order) -> bool {
        let ClassTerms { kind, priority, hold, is_priced, model, formula } = self;
        (*kind, *priority, *hold) == (order.kind, order.priority, order.hold())
            && *is_priced == order.price.is_some()
            && *model == order.model
            && *formula == order.formula
    }
}

impl ClassFinder {
    /// The classes of a job.
    pub fn classes_of(&mut self, order: &Order) -> Classes {
        if let Some((_, classes)) = self.last.as_ref().filter(|(terms, _)| terms.are_of(order)) {
            return *classes;
        }
        let classes = Grain::ALL.map(|grain| grain.class_of(order));
        self.last = Some((ClassTerms::of(order), classes));
        classes
    }
}

impl Census {
    /// Counts a job.
    pub fn count(&mut self, order: &Order) {
        self.add(order.priority, Grain::ALL.map(|grain| grain.class_of(order)));
    }

    /// Counts a job of that priority and those classes.
    pub fn add(&mut self, priority: i8, found: Classes) {
        if self.last == Some((priority, found)) {
            return;
        }
        for (class, classes) in found.into_iter().zip(&mut self.classes) {
            // One more than may be is all that has to be known.
            if classes.len() <= CLASSES_MAX {
                classes.insert((priority, class));
            }
        }
        self.last = Some((priority, found));
    }

    /// The finest grain that makes few enough classes.
    pub fn grain(&self) -> Grain {
        let with_classes = Grain::ALL.into_iter().zip(&self.classes);
        with_classes
            .filter(|(_, classes)| classes.len() <= CLASSES_MAX)
            .map(|(grain, _)| grain)
            .next()
            .unwrap_or(Grain::Mixed)
    }

    /// How many classes there are at a grain; one more than [`CLASSES_MAX`] for any larger number.
    pub fn classes(&self, grain: Grain) -> usize {
        let found = Grain::ALL.into_iter().zip(&self.classes).find(|(other, _)| *other == grain);
        found.map_or(0, |(_, classes)| classes.len())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::*;
    use crate::domain::credits::Credits;
    use crate::domain::request::Kind;

    fn order(kind: Kind, model: &str, price: u64) -> Order {
        Order {
            line: 1,
            kind,
            model: Some(model.to_owned()),
            body: Map::new(),
            price: Some(Credits(price)),
            bound: None,
            allowance: None,
            formula: format!("{price}"),
            waivable: Credits::ZERO,
            max_credits: None,
            priority: 0,
            deadline: None,
            meta: Map::new(),
        }
    }

    fn census(orders: impl IntoIterator<Item = Order>) -> Census {
        let mut census = Census::default();
        orders.into_iter().for_each(|order| census.count(&order));
        census
    }

    #[test]
    fn jobs_that_need_the_same_are_of_one_class() {
        let base = order(Kind::Video, "a", 12);
        let others = [order(Kind::Image, "a", 12), order(Kind::Video, "b", 12), order(Kind::Video, "a", 13)];
        for grain in [Grain::Formula, Grain::Price] {
            assert_eq!(grain.class_of(&base), grain.class_of(&Order { line: 9, ..base.clone() }));
            others.iter().for_each(|other| assert_ne!(grain.class_of(&base), grain.class_of(other)));
        }
        let unpriced = Order { price: None, max_credits: Some(Credits(12)), ..base.clone() };
        assert_ne!(Grain::Price.class_of(&base), Grain::Price.class_of(&unpriced));
        let computed = Order { formula: "6 s x 2/s = 12".to_owned(), ..base.clone() };
        assert_ne!(Grain::Formula.class_of(&base), Grain::Formula.class_of(&computed));
        assert_eq!(Grain::Price.class_of(&base), Grain::Price.class_of(&computed));
    }

    #[test]
    fn coarser_grains_join_prices_that_are_near() {
        let class = |grain: Grain, price| grain.class_of(&order(Kind::Video, "a", price));
        assert_eq!(class(Grain::NearPrice, 100), class(Grain::NearPrice, 111));
        assert_ne!(class(Grain::NearPrice, 100), class(Grain::NearPrice, 112));
        assert_eq!(class(Grain::Magnitude, 64), class(Grain::Magnitude, 127));
        assert_ne!(class(Grain::Magnitude, 127), class(Grain::Magnitude, 128));
        assert_eq!(class(Grain::Kind, 0), class(Grain::Kind, u64::MAX));
        assert_eq!(class(Grain::Mixed, 1), QueueClass::MIXED);
    }

    #[test]
    fn the_grain_is_the_finest_that_makes_few_classes() {
        let prices = |n: u64| (0..n).map(|price| order(Kind::Speech, "v", 1000 + price));
        assert_eq!(census(prices(100)).grain(), Grain::Formula);
        assert_eq!(census(prices(100)).classes(Grain::Formula), 100);
        assert_eq!(census(prices(5_000)).grain(), Grain::NearPrice);
        let models = (0..5_000).map(|n| order(Kind::Video, &n.to_string(), n));
        assert_eq!(census(models).grain(), Grain::Magnitude);
        let each = (i8::MIN..=i8::MAX).map(|priority| Order { priority, ..order(Kind::Video, "a", 1) });
        assert_eq!(census(each).grain(), Grain::Mixed, "a priority is never joined with another");
    }
}
