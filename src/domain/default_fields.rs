//! Fields that JSON leaves out while they have the value that they are read as where they are missing.

/// Whether a field has its default value; for serde's `skip_serializing_if`.
pub fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
