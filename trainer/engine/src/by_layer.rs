//! Values that differ between layers, such as angles and windows. Each distinct value is kept once.

use std::sync::Arc;

use tch::TchError;

use crate::torch::Result;

/// A value for each layer, where several layers share one.
#[derive(Debug)]
pub struct ByLayer<T> {
    values: Vec<T>,
    /// Which value is a layer's.
    of_layer: Arc<[usize]>,
}

// === impl ByLayer ===

impl<T> ByLayer<T> {
    /// Keeps the values of the layers in order, equal ones once.
    pub fn new(of_layers: impl Iterator<Item = T>) -> Self
    where
        T: PartialEq,
    {
        let mut values = Vec::new();
        let index = |value: T| {
            let known = values.iter().position(|known| *known == value);
            known.unwrap_or_else(|| {
                values.push(value);
                values.len() - 1
            })
        };
        let of_layer = of_layers.map(index).collect();
        Self { values, of_layer }
    }

    /// Another value in the place of each, made once for all layers that share it.
    ///
    /// # Errors
    /// The first that `make` returns.
    pub fn try_map<U>(&self, make: impl FnMut(&T) -> Result<U>) -> Result<ByLayer<U>> {
        Ok(ByLayer {
            values: self.values.iter().map(make).collect::<Result<_, _>>()?,
            of_layer: Arc::clone(&self.of_layer),
        })
    }

    /// A layer's.
    ///
    /// # Errors
    /// When there are fewer layers.
    pub fn of(&self, layer: usize) -> Result<&T> {
        let value = self.of_layer.get(layer).and_then(|&i| self.values.get(i));
        let missing = || TchError::Torch(format!("layer {layer} is of another model"));
        value.ok_or_else(missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_made_once() {
        let windows = ByLayer::new([Some(4), None, Some(4), Some(8)].into_iter());
        let mut made = Vec::new();
        let doubled = windows
            .try_map(|window: &Option<i32>| {
                made.push(*window);
                Ok(window.map(|n| n * 2))
            })
            .unwrap();
        assert_eq!(made, [Some(4), None, Some(8)]);
        let of = |layer| *doubled.of(layer).unwrap();
        assert_eq!(
            [of(0), of(1), of(2), of(3)],
            [Some(8), None, Some(8), Some(16)]
        );
        assert!(doubled.of(4).is_err());
    }
}
