//! Reading catalogs tolerantly.

use serde_json::{Value, json};

use super::{catalog, request};
use crate::domain::quote::catalog::CatalogEntry;
use crate::domain::quote::{Catalog, CatalogPart, Rules, quote};
use crate::domain::request::Kind;

fn said(catalog: &Catalog) -> Vec<&str> {
    catalog.oddities.iter().map(|(_, said)| said.as_str()).collect()
}

#[test]
fn one_broken_entry_never_loses_the_others() {
    let catalog = catalog();
    let last = catalog.video.iter().last().unwrap();
    assert_eq!((catalog.video.len(), last.id()), (15, "model-half-broken"));
    assert_eq!(last.modes.len(), 1, "its other mode is kept");
    assert_eq!(
        said(&catalog),
        [
            "entry 15 of the video catalog has no id",
            "entry 16 of the video catalog has no id",
            "mode text-to-video of model-half-broken is not an object"
        ]
    );
}

#[test]
fn the_list_is_the_data_or_in_it() {
    let entry = json!({"id": "m", "modes": {}});
    let in_data = [
        json!([entry]),
        json!({"models": [entry]}),
        json!({"type": "video", "tags": ["a"], "whatever": [entry], "total": 1}),
        json!({"groups": [{"id": "new"}], "models": [entry]}),
        json!({"groups": [{"id": "new"}], "videos": [entry]}),
    ];
    for data in in_data {
        let mut catalog = Catalog::default();
        catalog.read(CatalogPart::Video, &data);
        assert!(catalog.video.get("m").is_some(), "{data}");
    }
    for data in [json!(null), json!("x"), json!({"total": 0})] {
        let mut catalog = Catalog::default();
        catalog.read(CatalogPart::Video, &data);
        assert!(catalog.video.is_empty() && catalog.oddities.len() == 1, "{data}");
    }
}

#[test]
fn a_part_that_is_read_again_forgets_what_was_odd() {
    let mut catalog = catalog();
    let kept = catalog.image.len();
    catalog.read(CatalogPart::Video, &json!([{"id": "m", "modes": {}}]));
    assert_eq!((said(&catalog).len(), catalog.video.len(), catalog.image.len()), (0, 1, kept));
}

#[test]
fn entries_are_found_whole_in_what_the_service_gave() {
    let data = json!({"models": ["no entry", {"label": "no id"}, {"id": "m", "badge": "new"}, {"id": "m"}]});
    let entries = CatalogPart::Video.entries_by_id(&data);
    assert_eq!((entries.len(), &entries["m"]["badge"]), (1, &json!("new")));
    assert!(CatalogPart::Video.lists_any(&data) && CatalogPart::Voices.lists_any(&json!([{"id": "v"}])));
    for nothing in [json!({"models": [{"label": "no id"}, {"id": ""}]}), json!({"voices": []}), json!(7)] {
        assert!(!CatalogPart::Voices.lists_any(&nothing), "{nothing}");
    }
}

#[test]
fn the_first_of_two_equal_ids_counts() {
    let data = json!([{"id": "m", "label": "one", "modes": {}}, {"id": "m", "label": "two", "modes": {}}]);
    let mut catalog = Catalog::default();
    catalog.read(CatalogPart::Video, &data);
    assert_eq!(catalog.video.get("m").unwrap().label(), Some("one"));
    assert_eq!(said(&catalog), ["the video catalog lists m twice"]);
}

#[test]
fn an_empty_catalog_validates_nothing_and_prices_nothing() {
    let row = request(json!({"model": "anything", "prompt": "a fox", "options": {"duration": 3}}));
    let quote = quote(Some(Kind::Video), &row, &Catalog::default(), &Rules::builtin()).unwrap();
    assert_eq!((quote.price, quote.formula.as_str()), (None, "the video catalog does not list it"));
    assert_eq!(Value::Object(quote.body)["options"], json!({"duration": 3}));
}

#[test]
fn absurd_prices_are_no_price() {
    let price = |rate: Value| {
        let data = json!([{"id": "m", "modes": {"text-to-video": {"durations": ["10s"], "audio_toggle": true,
            "credits_per_second": rate, "pricing_note": "audio 2x", "defaults": {"duration": "10s"}}}}]);
        let catalog = Catalog::of(&data, &Value::Null, &Value::Null, &Value::Null);
        let row = request(json!({"model": "m", "prompt": "a fox", "options": {"audio": true}}));
        quote(Some(Kind::Video), &row, &catalog, &Rules::builtin()).unwrap().price.map(|price| price.0)
    };
    for absurd in [
        json!(1e300),
        json!(1e28),
        json!(1.8e18),
        json!(1e18),
        json!(-1),
        json!(true),
        json!("NaN"),
        json!([2]),
    ] {
        assert_eq!(price(absurd.clone()), None, "{absurd}");
    }
    assert_eq!(price(json!("2.5")), Some(50), "a number in quotes is one");
    assert_eq!(price(json!(0)), Some(0));
}
