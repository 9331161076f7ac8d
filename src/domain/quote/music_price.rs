//! What music costs: by the second, and never under a base (POST /api/v1/music).

use rust_decimal::Decimal;
use serde_json::Value;

use super::catalog::Catalog;
use super::duration::{decimal, plain};
use super::price_formula::Priced;
use super::price_matrix::{Most, Prices, Undecided};
use super::validate::found;

/// The least that a track costs.
const LEAST_CREDITS: u32 = 60;

/// `max(base, ceil(seconds))` (Rules of music, 3).
pub(super) fn price(length: Option<&Value>, catalog: &Catalog) -> Priced {
    let Some(seconds) = length.and_then(Value::as_number).and_then(decimal) else {
        return Priced::unpriced(format!("found {}", length.map_or(String::new(), found)));
    };
    let base = match base(catalog) {
        Ok(base) => base,
        Err(Undecided { why, most }) => {
            let most = Most { price: most.price.max(seconds.ceil()), ..most };
            return Priced::at_most(why, most);
        }
    };
    let formula = format!("the greater of {} and {} s = ", plain(base), plain(seconds));
    let by_length = seconds.ceil() > base;
    let cell = if by_length { "1/s".to_owned() } else { format!("base {}", plain(base)) };
    Priced::of(base.max(seconds.ceil()), &formula, cell)
}

/// The base price: the catalog's, and never under the document's. The service chooses the model, so
/// a catalog whose models differ gives no base.
fn base(catalog: &Catalog) -> Result<Decimal, Undecided> {
    let least = Decimal::from(LEAST_CREDITS);
    let listed = catalog.music.iter().filter_map(|model| model.credits.as_ref());
    let bases: Vec<Option<Decimal>> = listed
        .map(|prices| match prices {
            Prices::One(price) => Some(*price),
            _ => None,
        })
        .collect();
    let dearest = bases.iter().flatten().copied().fold(least, Decimal::max);
    let is_firm = !bases.contains(&None);
    let most = Most { price: dearest, is_firm };
    if !is_firm {
        let why = "the base price in the music catalog is not a number".to_owned();
        return Err(Undecided { why, most });
    }
    if bases.windows(2).any(|pair| pair.first() != pair.last()) {
        let why = "the music models have different base prices, and the service chooses".to_owned();
        return Err(Undecided { why, most });
    }
    Ok(dearest)
}
