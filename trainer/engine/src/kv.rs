//! Keys and values of all sequences, in pages of [`PAGE`] positions.
//!
//! One tensor per layer holds every page (`pool`). The ownership of pages is tracked on the host, without tensors: free
//! pages (`pages`), the tree of pages with known ids (`radix`), and the table of one sequence (`blocks`). The address
//! space is reserved once, so its size is never exceeded. A page that was never written takes no memory
//! (PagedAttention, <https://arxiv.org/abs/2309.06180>; RadixAttention, <https://arxiv.org/abs/2312.07104>).

mod blocks;
mod budget;
mod pages;
mod pool;
mod radix;
mod states;

pub(crate) use self::blocks::{BlockManager, FEWEST_STATES, PageTable};
pub(crate) use self::budget::default_budget;
pub use self::pool::{KvPool, LayerKv};
pub(crate) use self::radix::WeightsKey;
pub(crate) use self::states::slot_bytes;
pub use self::states::{LayerStates, StateMove};

/// Positions of a page. It is small enough that little is lost after the last full page, and large enough that a long
/// prompt is found in few steps.
pub const PAGE: usize = 16;

/// Consecutive positions of the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PositionRun {
    pub start: usize,
    pub len: usize,
}
