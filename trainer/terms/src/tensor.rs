//! Small dense tables with one or several values for each position.

/// A row-major tensor of shape `[N]` or `[N, K]`.
///
/// `[N]` and `[N, 1]` are distinguished, because they are written differently.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor2<T> {
    data: Vec<T>,
    rows: usize,
    width: Option<usize>,
}

/// Why values and shape do not fit together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// The shape is neither `[N]` nor `[N, K]`.
    #[error("shape {shape:?} is not allowed: [N] or [N, K] with K of at least 1")]
    Rank { shape: Vec<usize> },
    /// The product of the shape is not the number of values.
    #[error("shape {shape:?} does not fit its {len} values")]
    Length {
        shape: Vec<usize>,
        /// The number of values.
        len: usize,
    },
}

// === impl Tensor2 ===

impl<T> Tensor2<T> {
    /// A tensor with one value for each position: `[N]`.
    pub fn vector(data: Vec<T>) -> Self {
        let rows = data.len();
        Self {
            data,
            rows,
            width: None,
        }
    }

    /// Creates a tensor from `data` in row-major order and `shape`.
    ///
    /// # Errors
    /// Returns [`ShapeError`] if the shape is neither `[N]` nor `[N, K]`, or does not fit.
    pub fn shaped(data: Vec<T>, shape: &[usize]) -> Result<Self, ShapeError> {
        let (rows, width) = match *shape {
            [rows] => (rows, None),
            [rows, width] if width > 0 => (rows, Some(width)),
            _ => {
                let shape = shape.to_vec();
                return Err(ShapeError::Rank { shape });
            }
        };
        if rows.checked_mul(width.unwrap_or(1)) != Some(data.len()) {
            let (shape, len) = (shape.to_vec(), data.len());
            return Err(ShapeError::Length { shape, len });
        }
        Ok(Self { data, rows, width })
    }

    /// Returns `N`.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the number of values for each position: `K`, or 1 for a vector.
    pub fn width(&self) -> usize {
        self.width.unwrap_or(1)
    }

    /// Returns whether the shape is `[N, K]`.
    pub fn is_matrix(&self) -> bool {
        self.width.is_some()
    }

    /// Returns `[N]` or `[N, K]`.
    pub fn shape(&self) -> Vec<usize> {
        std::iter::once(self.rows).chain(self.width).collect()
    }

    pub fn values(&self) -> &[T] {
        &self.data
    }

    pub fn into_values(self) -> Vec<T> {
        self.data
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_must_fit_its_values() {
        assert!(Tensor2::shaped(vec![1, 2, 3, 4], &[2, 2]).is_ok());
        assert!(Tensor2::shaped(vec![1, 2, 3], &[3]).is_ok());
        for shape in [&[3_usize][..], &[2, 3], &[2, 0], &[1, 2, 2], &[]] {
            assert!(
                Tensor2::shaped(vec![1, 2, 3, 4], shape).is_err(),
                "{shape:?}"
            );
        }
        assert!(Tensor2::<u8>::shaped(vec![], &[usize::MAX, 2]).is_err());
    }
}
