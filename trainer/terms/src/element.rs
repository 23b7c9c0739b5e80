//! The numbers of tensors, and their little-endian bytes.

/// The number type of a tensor of one dtype.
pub trait NumberElement: Copy {
    const NAME: &'static str;
    fn read(bytes: &[u8]) -> Option<Self>;
    fn put(self, bytes: &mut Vec<u8>);
    fn from_number(number: f64) -> Option<Self>;
}

/// Returns the little-endian bytes of numbers.
pub fn bytes<T: NumberElement>(values: impl IntoIterator<Item = T>) -> Vec<u8> {
    let values = values.into_iter();
    let mut bytes = Vec::with_capacity(values.size_hint().0 * size_of::<T>());
    values.for_each(|value| value.put(&mut bytes));
    bytes
}

/// Reads numbers from their little-endian bytes.
///
/// # Errors
/// Returns a text if the last number is incomplete.
pub fn values<T: NumberElement>(bytes: &[u8]) -> Result<Vec<T>, String> {
    let (n, unit, dtype) = (bytes.len(), size_of::<T>(), T::NAME);
    if !n.is_multiple_of(unit) {
        return Err(format!(
            "{n} bytes: a multiple of {unit} is needed for {dtype}"
        ));
    }
    Ok(bytes.chunks_exact(unit).filter_map(T::read).collect())
}

// === impl NumberElement ===

impl NumberElement for i64 {
    const NAME: &'static str = "int64";

    fn read(bytes: &[u8]) -> Option<Self> {
        Some(Self::from_le_bytes(bytes.try_into().ok()?))
    }

    fn put(self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.to_le_bytes());
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "a whole number within 2^53 is exact in both"
    )]
    fn from_number(number: f64) -> Option<Self> {
        const EXACT: f64 = 9_007_199_254_740_992.0;
        (number.fract() == 0.0 && number.abs() <= EXACT).then_some(number as Self)
    }
}

impl NumberElement for f32 {
    const NAME: &'static str = "float32";

    fn read(bytes: &[u8]) -> Option<Self> {
        Some(Self::from_le_bytes(bytes.try_into().ok()?))
    }

    fn put(self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.to_le_bytes());
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "float32 is what the field is; too large becomes infinite and is refused"
    )]
    fn from_number(number: f64) -> Option<Self> {
        Some(number as Self)
    }
}
