//! Keys and values of all sequences, in pages of [`PAGE`] positions.
//!
//! One tensor a layer holds every page (`pool`). Which page belongs to whom is counted on the host,
//! without a tensor in sight: free pages (`pages`), the tree of pages whose ids are known (`radix`), and
//! the table of one sequence (`blocks`). Memory is set aside once, so it is never exceeded; a page that was
//! never written costs none (PagedAttention, <https://arxiv.org/abs/2309.06180>; RadixAttention,
//! <https://arxiv.org/abs/2312.07104>).

mod blocks;
mod budget;
mod pages;
mod pool;
mod radix;

pub(crate) use self::blocks::{BlockManager, PageTable};
pub(crate) use self::budget::default_budget;
pub use self::pool::{KvPool, LayerKv};
pub(crate) use self::radix::WeightsKey;

/// Positions of a page: small enough that little is lost behind the last full one, large enough that a
/// long prompt is found in few looks.
pub const PAGE: usize = 16;

/// Consecutive positions of the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    pub start: usize,
    pub len: usize,
}
