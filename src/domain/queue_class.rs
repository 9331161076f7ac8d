//! Which waiting jobs are alike: what keeps one of a class from being sent keeps all of it.
//!
//! Each class of a batch waits in a queue of its own, so that rows that fit no budget, or have no free slot, stand in
//! nobody's way but their own. The number of classes is bounded: a manifest with more is divided more coarsely.
//!
//! Where groups of rows have budgets (`[budget.by."meta.client"]`), jobs of one class are of one group, too, so that one
//! whose budget is spent stands in nobody else's way. Of too many groups several share a class.

use std::collections::BTreeSet;

use crate::domain::budget_group::GroupKey;
use crate::domain::job::Order;
use crate::domain::json_object::JsonObject;
use serde::{Deserialize, Serialize};

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

/// What the jobs of one class have in common beside their group.
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
        if !order.inputs.is_empty() {
            // They wait for other rows, which others of the kind do not.
            hash.add(b"inputs");
        }
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

/// The groups of a job that have budgets of their own, as a hash; 0 where no groups have.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct GroupHash(pub u32);

impl GroupHash {
    /// Of a job with this `meta`, where these keys have budgets. All jobs of a batch are of one inbox: that divides none.
    pub fn of<'k>(keys: impl IntoIterator<Item = &'k GroupKey>, meta: &JsonObject) -> GroupHash {
        let mut hash = Fnv::new();
        let mut has_column = false;
        for key in keys.into_iter().filter(|key| matches!(key, GroupKey::Meta(_))) {
            has_column = true;
            let value = key.value_of(meta, None);
            hash.add(&[u8::from(value.is_some())]);
            hash.add(value.as_deref().unwrap_or_default().as_bytes());
        }
        GroupHash(if has_column { hash.0.max(1) } else { 0 })
    }

    /// A class of jobs that may be of any group, divided by this one.
    pub fn divide(self, class: QueueClass) -> QueueClass {
        if self.0 == 0 {
            return class;
        }
        let mut hash = Fnv::new();
        hash.add(&self.0.to_be_bytes());
        hash.add(&class.0.to_be_bytes());
        QueueClass(hash.0.max(1))
    }
}

/// The classes of a job.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Classes {
    /// At every grain, in the order of [`Grain::ALL`], whatever its group.
    pub by_grain: [QueueClass; Grain::ALL.len()],
    pub group: GroupHash,
}

impl Classes {
    /// Of a job of that group.
    pub fn of(order: &Order, group: GroupHash) -> Classes {
        Classes { by_grain: Grain::ALL.map(|grain| grain.class_of(order)), group }
    }
}

/// Into which classes the jobs of a manifest are divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Division {
    /// By group, and at this grain.
    Group(Grain),
    /// By group, where several groups are of one class.
    SomeGroups,
    /// At this grain alone.
    Grain(Grain),
}

/// Classes of [`Division::SomeGroups`].
const SHARED_BY_GROUPS: u32 = 61;

impl Division {
    /// All of them, those first that let the fewest jobs stand in the way of others.
    pub const ALL: [Division; 2 * Grain::ALL.len() + 1] = [
        Division::Group(Grain::Formula),
        Division::Group(Grain::Price),
        Division::Group(Grain::NearPrice),
        Division::Group(Grain::Magnitude),
        Division::Group(Grain::Kind),
        Division::Group(Grain::Mixed),
        Division::SomeGroups,
        Division::Grain(Grain::Formula),
        Division::Grain(Grain::Price),
        Division::Grain(Grain::NearPrice),
        Division::Grain(Grain::Magnitude),
        Division::Grain(Grain::Kind),
        Division::Grain(Grain::Mixed),
    ];

    /// Of the classes of a job, the one of this division.
    pub fn of(self, classes: &Classes) -> QueueClass {
        let at = |grain: Grain| {
            let place = Grain::ALL.iter().position(|other| *other == grain).unwrap_or_default();
            classes.by_grain[place]
        };
        match self {
            Division::Group(grain) => classes.group.divide(at(grain)),
            Division::SomeGroups if classes.group.0 == 0 => QueueClass::MIXED,
            Division::SomeGroups => QueueClass(1 + classes.group.0 % SHARED_BY_GROUPS),
            Division::Grain(grain) => at(grain),
        }
    }
}

/// Counts the classes that jobs make by each division.
#[derive(Debug, Clone, Default)]
pub struct Census {
    classes: [BTreeSet<(i8, QueueClass)>; Division::ALL.len()],
    /// What was counted last: jobs that are alike mostly stand together.
    last: Option<(i8, Classes)>,
}

impl Census {
    /// Counts a job.
    pub fn count(&mut self, order: &Order) {
        self.add(order.priority, Classes::of(order, GroupHash::default()));
    }

    /// Counts a job of that priority and those classes.
    pub fn add(&mut self, priority: i8, found: Classes) {
        if self.last == Some((priority, found)) {
            return;
        }
        for (division, classes) in Division::ALL.into_iter().zip(&mut self.classes) {
            // One more than may be is all that has to be known.
            if classes.len() <= CLASSES_MAX {
                classes.insert((priority, division.of(&found)));
            }
        }
        self.last = Some((priority, found));
    }

    /// The first division that makes few enough classes.
    pub fn division(&self) -> Division {
        let with_classes = Division::ALL.into_iter().zip(&self.classes);
        with_classes
            .filter(|(_, classes)| classes.len() <= CLASSES_MAX)
            .map(|(division, _)| division)
            .next()
            .unwrap_or(Division::Grain(Grain::Mixed))
    }

    /// How many classes a division makes; one more than [`CLASSES_MAX`] for any larger number.
    pub fn classes(&self, division: Division) -> usize {
        let found = Division::ALL.into_iter().zip(&self.classes).find(|(other, _)| *other == division);
        found.map_or(0, |(_, classes)| classes.len())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value};

    use super::*;
    use crate::domain::credits::Credits;
    use crate::domain::ids::Fingerprint;
    use crate::domain::job::OrderTerms;
    use crate::domain::job_reference::{InputField, JobInput};
    use crate::domain::request::Kind;

    fn order(kind: Kind, model: &str, price: u64) -> Order {
        let terms = OrderTerms {
            model: Some(model.to_owned()),
            price: Some(Credits(price)),
            formula: format!("{price}"),
            ..OrderTerms::of(kind)
        };
        Order {
            line: 1,
            body: JsonObject::default(),
            inputs: Default::default(),
            files: Default::default(),
            written: None,
            meta: JsonObject::default(),
            terms: terms.into(),
        }
    }

    /// The same order under other terms.
    fn with(order: &Order, change: impl FnOnce(&mut OrderTerms)) -> Order {
        let mut order = order.clone();
        change(order.terms_mut());
        order
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
        let unpriced = with(&base, |terms| (terms.price, terms.max_credits) = (None, Some(Credits(12))));
        assert_ne!(Grain::Price.class_of(&base), Grain::Price.class_of(&unpriced));
        let computed = with(&base, |terms| terms.formula = "6 s x 2/s = 12".to_owned());
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
        let at = Division::Group;
        assert_eq!(census(prices(100)).division(), at(Grain::Formula));
        assert_eq!(census(prices(100)).classes(at(Grain::Formula)), 100);
        assert_eq!(census(prices(5_000)).division(), at(Grain::NearPrice));
        let models = (0..5_000).map(|n| order(Kind::Video, &n.to_string(), n));
        assert_eq!(census(models).division(), at(Grain::Magnitude));
        let base = order(Kind::Video, "a", 1);
        let each = (i8::MIN..=i8::MAX).map(|priority| with(&base, |terms| terms.priority = priority));
        let mixed = Division::Grain(Grain::Mixed);
        assert_eq!(census(each).division(), mixed, "a priority is never joined with another");
    }

    /// The classes of a job of a client.
    fn of_client(client: Option<&str>, price: u64) -> Classes {
        let keys = ["inbox".parse().unwrap(), "meta.client".parse().unwrap()];
        let meta = client.map(|client| ("client".to_owned(), Value::from(client)));
        let meta: Map<String, Value> = meta.into_iter().collect();
        Classes::of(&order(Kind::Image, "m", price), GroupHash::of(&keys, &meta.into()))
    }

    #[test]
    fn jobs_of_one_class_are_of_one_group_that_has_a_budget() {
        let classes = [Some("acme"), Some("beta"), None].map(|client| of_client(client, 4));
        for division in Division::ALL {
            let found: BTreeSet<QueueClass> = classes.iter().map(|classes| division.of(classes)).collect();
            assert_eq!(found.len() == 3, !matches!(division, Division::Grain(_)), "{division:?}");
        }
        // Where no group has a budget, the classes are those that jobs always had.
        let plain = Classes::of(&order(Kind::Image, "m", 4), GroupHash::default());
        for (place, grain) in Grain::ALL.into_iter().enumerate() {
            assert_eq!(Division::Group(grain).of(&plain), plain.by_grain[place]);
            assert_eq!(Division::Grain(grain).of(&classes[0]), plain.by_grain[place]);
        }
    }

    #[test]
    fn jobs_that_wait_for_others_are_of_other_classes_than_those_that_do_not() {
        let plain = order(Kind::Video, "a", 4);
        let input = JobInput {
            field: InputField::ImageUrls,
            place: 0,
            batch: None,
            row: "hero".to_owned(),
            fingerprint: Fingerprint([0; 16]),
            takes: 1,
            variation: None,
            output: 1,
        };
        let waiting = Order { inputs: vec![input].into(), ..plain.clone() };
        for grain in Grain::ALL.into_iter().filter(|grain| *grain != Grain::Mixed) {
            assert_ne!(grain.class_of(&plain), grain.class_of(&waiting), "{grain:?}");
        }
    }

    #[test]
    fn few_groups_have_classes_of_their_own_and_many_share_some() {
        let census = |clients: u64, prices: u64| {
            let mut census = Census::default();
            for client in 0..clients {
                (0..prices)
                    .for_each(|price| census.add(0, of_client(Some(&client.to_string()), 1_000 + price)));
            }
            census.division()
        };
        assert_eq!(census(40, 3), Division::Group(Grain::Formula));
        assert_eq!(census(100, 3), Division::Group(Grain::NearPrice));
        assert_eq!(census(900, 3), Division::SomeGroups);
    }
}
