//! How many times faster than real time an emulator works.

/// A factor that time can be divided by.
pub(super) fn speed(text: &str) -> Result<f64, String> {
    text.parse::<f64>()
        .ok()
        .filter(|factor| *factor > 0.0)
        .ok_or_else(|| String::from("must be a number greater than 0, such as 20, or inf"))
}
