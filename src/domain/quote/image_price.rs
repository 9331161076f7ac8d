//! What an image costs: by resolution, aspect ratio and quality, as far as the catalog tells them apart (POST /api/v1/images).

use super::catalog::ImageMode;
use super::price_formula::Priced;
use super::price_matrix::{Pick, Prices, below, settle};

/// The catalog prices resolutions and aspect ratios: exact pixels are priced where all of them agree.
pub(super) fn price_of_pixels(mode: &ImageMode, quality: Option<&str>) -> Priced {
    let priced = price(mode, quality, None, None);
    if priced.credits.is_some() || mode.credits_by_resolution_and_aspect_ratio.is_none() {
        return priced;
    }
    let formula = "the catalog has prices by resolution and aspect ratio, and none for an exact size";
    Priced { formula: formula.to_owned(), ..priced }
}

/// Image cost: by resolution, aspect ratio and quality, by quality, or one price.
pub(super) fn price(
    mode: &ImageMode,
    quality: Option<&str>,
    resolution: Option<&str>,
    ratio: Option<&str>,
) -> Priced {
    if let Some(prices) = &mode.credits_by_resolution_and_aspect_ratio {
        let levels = [("resolution", resolution), ("aspect ratio", ratio), ("quality", quality)];
        return settled(prices, &levels);
    }
    match (&mode.credits, &mode.credits_per_generation) {
        (Some(prices), _) => settled(prices, &[("quality", quality)]),
        (None, Some(price)) => settled(price, &[]),
        (None, None) => Priced::unpriced("the catalog gives it no price"),
    }
}

/// Follows the levels of a price down; a level that nothing decides must not matter.
fn settled(prices: &Prices, levels: &[(&'static str, Option<&str>)]) -> Priced {
    let cell = settle(prices, 0, &|map, depth| match levels.get(depth) {
        Some((_, Some(key))) => match below(map, key) {
            Some((key, prices)) => Pick::Key(key, prices),
            None => Pick::Nothing(format!("the catalog lists no price for {key}")),
        },
        Some((what, None)) => Pick::Any(what),
        None => Pick::Any("price key"),
    });
    cell.map_or_else(Priced::undecided, |cell| Priced::fixed(&cell))
}
