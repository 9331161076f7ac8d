//! Lists that mostly have one or two entries, of which there are very many: read without room for more than they have.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, SeqAccess, Visitor};
use thin_vec::{ThinVec, thin_vec};

/// Reads a list; for serde's `deserialize_with`. A list read as usual has room for four entries from the first on.
///
/// # Errors
/// Those of the entries.
pub fn short_list<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<ThinVec<T>, D::Error> {
    from.deserialize_seq(Entries(PhantomData))
}

struct Entries<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Entries<T> {
    type Value = ThinVec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a sequence")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<ThinVec<T>, A::Error> {
        let Some(first) = entries.next_element()? else { return Ok(ThinVec::new()) };
        let Some(second) = entries.next_element()? else { return Ok(thin_vec![first]) };
        let mut all = thin_vec![first, second];
        while let Some(next) = entries.next_element()? {
            all.push(next);
        }
        all.shrink_to_fit();
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_room_for_what_it_has() {
        for length in 0..9 {
            let entries: Vec<u32> = (0..length).collect();
            let json = serde_json::to_string(&entries).unwrap();
            let read: ThinVec<u32> = short_list(&mut serde_json::Deserializer::from_str(&json)).unwrap();
            assert_eq!(read, entries);
            assert_eq!(read.capacity(), entries.len());
        }
        let refused = |json| short_list::<_, u32>(&mut serde_json::Deserializer::from_str(json)).unwrap_err();
        assert!(refused("[1, 2, \"3\"]").to_string().starts_with("invalid type: string \"3\""));
        assert!(refused("{}").to_string().starts_with("invalid type: map, expected a sequence"));
    }
}
