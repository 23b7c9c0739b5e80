//! Keys and values of one sequence, preallocated and doubled up to the context.

use tch::{Device, Kind, TchError, Tensor};

use crate::family::Family;

/// First allocation, positions.
const FIRST: usize = 512;

/// Keys and values of one layer, `[1, n_kv_heads, capacity, head_dim]`.
#[derive(Debug)]
pub struct LayerCache {
    k: Tensor,
    v: Tensor,
}

impl LayerCache {
    /// Writes `k` and `v` (`[1, n_kv_heads, t, head_dim]`) at `len` and returns views of all `len + t` positions.
    ///
    /// # Errors
    /// When the cache was not reserved for as many positions.
    pub fn append(
        &mut self,
        k: &Tensor,
        v: &Tensor,
        len: usize,
    ) -> Result<(Tensor, Tensor), TchError> {
        let t = k.size4()?.2;
        let len = i64::try_from(len).unwrap_or(i64::MAX);
        self.k.f_narrow(2, len, t)?.f_copy_(k)?;
        self.v.f_narrow(2, len, t)?.f_copy_(v)?;
        Ok((
            self.k.f_narrow(2, 0, len + t)?,
            self.v.f_narrow(2, 0, len + t)?,
        ))
    }

    fn empty(shape: [i64; 4], options: (Kind, Device)) -> Result<Self, TchError> {
        Ok(Self {
            k: Tensor::f_zeros(shape, options)?,
            v: Tensor::f_zeros(shape, options)?,
        })
    }

    /// A copy of the first `len` positions in `shape`.
    fn resized(&self, len: i64, shape: [i64; 4]) -> Result<Self, TchError> {
        let options = (self.k.f_kind()?, self.k.device());
        let bigger = Self::empty(shape, options)?;
        for (new, old) in [(&bigger.k, &self.k), (&bigger.v, &self.v)] {
            new.f_narrow(2, 0, len)?
                .f_copy_(&old.f_narrow(2, 0, len)?)?;
        }
        Ok(bigger)
    }
}

/// Keys and values of one sequence in all layers.
#[derive(Debug)]
pub struct KvCache {
    layers: Vec<LayerCache>,
    len: usize,
    capacity: usize,
    context: usize,
    n_kv_heads: i64,
    head_dim: i64,
    kind: Kind,
}

impl KvCache {
    /// An empty cache that will hold at least `positions`.
    ///
    /// # Errors
    /// What libtorch reports, such as lack of memory.
    pub fn new(
        family: &Family,
        positions: usize,
        kind: Kind,
        device: Device,
    ) -> Result<Self, TchError> {
        let capacity = round_up(positions, family.context);
        let mut cache = Self {
            layers: Vec::with_capacity(family.n_layers),
            len: 0,
            capacity,
            context: family.context,
            n_kv_heads: family.n_kv_heads,
            head_dim: family.head_dim,
            kind,
        };
        for _ in 0..family.n_layers {
            cache
                .layers
                .push(LayerCache::empty(cache.shape(capacity), (kind, device))?);
        }
        Ok(cache)
    }

    /// Positions cached.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing is cached.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Memory held.
    pub fn bytes(&self) -> usize {
        self.bytes_for(self.capacity)
    }

    /// Memory of a cache for `positions` positions.
    pub fn bytes_of(family: &Family, positions: usize, kind: Kind) -> usize {
        round_up(positions, family.context) * Self::position_bytes(family, kind)
    }

    /// Memory of one position in all layers.
    pub fn position_bytes(family: &Family, kind: Kind) -> usize {
        let numbers = usize::try_from(family.n_kv_heads * family.head_dim * 2).unwrap_or(0);
        numbers * family.n_layers * kind.elt_size_in_bytes()
    }

    /// Makes room for `extra` more positions, doubling.
    ///
    /// # Errors
    /// What libtorch reports, such as lack of memory; the cache is as it was.
    pub fn reserve(&mut self, extra: usize) -> Result<(), TchError> {
        let wanted = round_up(self.len + extra, self.context);
        if wanted <= self.capacity {
            return Ok(());
        }
        let len = i64::try_from(self.len).unwrap_or(i64::MAX);
        let shape = self.shape(wanted);
        self.layers = self
            .layers
            .iter()
            .map(|layer| layer.resized(len, shape))
            .collect::<Result<_, _>>()?;
        self.capacity = wanted;
        Ok(())
    }

    /// A copy of the first `len` positions.
    ///
    /// # Errors
    /// What libtorch reports, such as lack of memory.
    pub fn prefix(&self, len: usize) -> Result<Self, TchError> {
        let len = len.min(self.len);
        let capacity = round_up(len + 1, self.context);
        let (rows, shape) = (i64::try_from(len).unwrap_or(i64::MAX), self.shape(capacity));
        let layers = self.layers.iter().map(|layer| layer.resized(rows, shape));
        Ok(Self {
            layers: layers.collect::<Result<_, _>>()?,
            len,
            capacity,
            ..*self
        })
    }

    /// The layers, to run a forward pass on, and the positions cached before it.
    pub fn layers_mut(&mut self) -> (&mut [LayerCache], usize) {
        (&mut self.layers, self.len)
    }

    /// Counts `t` positions that a forward pass appended to every layer.
    pub fn advance(&mut self, t: usize) {
        self.len += t;
    }

    /// Forgets all but the first `len` positions; their memory is kept.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    fn shape(&self, capacity: usize) -> [i64; 4] {
        [
            1,
            self.n_kv_heads,
            i64::try_from(capacity).unwrap_or(i64::MAX),
            self.head_dim,
        ]
    }

    fn bytes_for(&self, capacity: usize) -> usize {
        let position = usize::try_from(self.n_kv_heads * self.head_dim * 2).unwrap_or(0);
        capacity * self.layers.len() * position * self.kind.elt_size_in_bytes()
    }
}

/// The next of 512, 1024, 2048 … that holds `positions`, at most the context but never less than asked.
fn round_up(positions: usize, context: usize) -> usize {
    let mut capacity = FIRST;
    while capacity < positions {
        capacity *= 2;
    }
    capacity.min(context).max(positions)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kv(family: &Family, t: i64) -> Tensor {
        Tensor::randn(
            [1, family.n_kv_heads, t, family.head_dim],
            (Kind::Float, Device::Cpu),
        )
    }

    #[test]
    fn growing_keeps_what_was_cached_and_counts_bytes() {
        let mut family = crate::testing::tiny_family();
        family.context = 2000;
        let mut cache = KvCache::new(&family, 3, Kind::Float, Device::Cpu).unwrap();
        let small = cache.bytes();
        assert_eq!(small, KvCache::bytes_of(&family, 512, Kind::Float));
        let (k, v) = (kv(&family, 3), kv(&family, 3));
        for layer in cache.layers_mut().0 {
            let _views = layer.append(&k, &v, 0).unwrap();
        }
        cache.advance(3);
        cache.reserve(600).unwrap();
        assert_eq!(cache.bytes(), 2 * small);
        let more = kv(&family, 1);
        let (all, _) = cache.layers_mut().0[0].append(&more, &more, 3).unwrap();
        assert!(all.narrow(2, 0, 3).equal(&k) && all.narrow(2, 3, 1).equal(&more));
        cache.reserve(1997).unwrap();
        assert_eq!(cache.capacity, 2000, "never beyond the context");
    }
}
