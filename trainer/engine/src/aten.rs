//! What the bindings of libtorch lack, from `aten/aten.cpp`.
#![expect(unsafe_code, reason = "functions of a library in another language")]

use std::ffi::{CStr, c_char, c_void};
use std::ptr;

use tch::{TchError, Tensor};

use crate::torch::Result;

/// Queries that attend to keys.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    /// The first query, and how many.
    pub(crate) q: i64,
    pub(crate) n_q: i64,
    /// The first key, and how many.
    pub(crate) k: i64,
    pub(crate) n_k: i64,
    /// 1 where each query sees the keys up to its own, 0 where it sees all.
    pub(crate) causal: i64,
}

/// New positions of several sequences, one after the other, and the keys that they see; tensors are i32.
#[derive(Debug)]
pub(crate) struct Sequences {
    /// Where the positions of each begin and, last, where they end, `[n + 1]`.
    pub(crate) queries: Tensor,
    /// Where the keys of each begin, `[n + 1]`; the last number is not read.
    pub(crate) keys: Tensor,
    /// How many keys each has, its new positions the last of them, `[n]`.
    pub(crate) n_keys: Tensor,
    pub(crate) most_queries: i64,
    pub(crate) most_keys: i64,
}

/// As the bindings have it.
type Raw = *mut torch_sys::C_tensor;

const ERROR_LENGTH: usize = 2048;

unsafe extern "C" {
    fn metaclaw_vjp(
        error: *mut c_char,
        ys: *const Raw,
        grads: *const Raw,
        n: usize,
        leaves: *const Raw,
        n_leaves: usize,
        found: *mut Raw,
    );
    fn metaclaw_attention_in_parts(
        error: *mut c_char,
        q: Raw,
        k: Raw,
        v: Raw,
        parts: *const Part,
        n: usize,
    ) -> Raw;
    fn metaclaw_attention_of_sequences(
        error: *mut c_char,
        q: Raw,
        k: Raw,
        v: Raw,
        places: *const Raw,
        most_queries: i64,
        most_keys: i64,
        window: i64,
    ) -> Raw;
    fn metaclaw_add_product(error: *mut c_char, sum: Raw, x: Raw, w: Raw);
    fn metaclaw_plain_calls_begin() -> *mut c_void;
    fn metaclaw_plain_calls_end(guard: *mut c_void);
}

/// While it lives, no call on this thread builds a graph or counts versions: it costs each call a part of its time.
pub(crate) struct PlainCalls(*mut c_void);

/// Gradients of `sum(y * grad)` over all pairs by the leaves: the vector-Jacobian product. Its graph is gone afterwards.
///
/// # Errors
/// When no `y` depends on one of the leaves, or libtorch refuses.
pub(crate) fn vjp(pairs: &[(&Tensor, &Tensor)], leaves: &[&Tensor]) -> Result<Vec<Tensor>> {
    let ys: Vec<Raw> = pairs.iter().map(|(y, _)| raw(y)).collect();
    let grads: Vec<Raw> = pairs.iter().map(|(_, grad)| raw(grad)).collect();
    let leaves: Vec<Raw> = leaves.iter().map(|leaf| raw(leaf)).collect();
    let mut found = vec![ptr::null_mut(); leaves.len()];
    // SAFETY: the lists have the lengths that are given with them, and their tensors are borrowed until the call ends.
    checked(|error| unsafe {
        metaclaw_vjp(
            error,
            ys.as_ptr(),
            grads.as_ptr(),
            ys.len(),
            leaves.as_ptr(),
            leaves.len(),
            found.as_mut_ptr(),
        );
    })?;
    // SAFETY: without an error there is a new tensor in each place, which nobody else has.
    Ok(found
        .into_iter()
        .map(|new| unsafe { Tensor::from_ptr(new) })
        .collect())
}

/// Attention of queries to the keys of their parts, without a mask; differentiable.
///
/// # Shapes
/// `q`: `[1, heads, t, e]`, `k` and `v`: `[1, key heads, s, e]`, all in one dtype. `parts`: those of the same queries follow one
/// another, and all queries have one. Returns as `q`.
///
/// # Errors
/// What libtorch refuses, a part beyond the tensors above all.
pub(crate) fn attention_in_parts([q, k, v]: [&Tensor; 3], parts: &[Part]) -> Result<Tensor> {
    // SAFETY: the tensors and the list of this length are borrowed until the call ends.
    let found = checked(|error| unsafe {
        metaclaw_attention_in_parts(error, raw(q), raw(k), raw(v), parts.as_ptr(), parts.len())
    })?;
    // SAFETY: without an error it is a new tensor, which nobody else has.
    Ok(unsafe { Tensor::from_ptr(found) })
}

/// Attention of new positions of several sequences in one call. Each sees the keys of its sequence up to itself, or the `window`
/// newest of them; inference only.
///
/// # Shapes
/// `q`: `[t, heads, e]`, `k` and `v`: `[s, key heads, e]`, all in one dtype, 16 bits on a GPU. Returns as `q`.
///
/// # Errors
/// What libtorch refuses.
pub(crate) fn attention_of_sequences(
    [q, k, v]: [&Tensor; 3],
    of: &Sequences,
    window: Option<i64>,
) -> Result<Tensor> {
    let places = [raw(&of.queries), raw(&of.keys), raw(&of.n_keys)];
    // SAFETY: the tensors and the list of three are borrowed until the call ends.
    let found = checked(|error| unsafe {
        metaclaw_attention_of_sequences(
            error,
            raw(q),
            raw(k),
            raw(v),
            places.as_ptr(),
            of.most_queries,
            of.most_keys,
            window.unwrap_or(0),
        )
    })?;
    // SAFETY: without an error it is a new tensor, which nobody else has.
    Ok(unsafe { Tensor::from_ptr(found) })
}

/// Adds `x Wᵀ` to a sum in place; inference only. A GPU does both in one call.
///
/// # Shapes
/// `sum`: `[n, out]`, f32. `x`: `[n, in]`, `weight`: `[out, in]`, in one dtype.
///
/// # Errors
/// What libtorch refuses.
pub(crate) fn add_product(sum: &mut Tensor, x: &Tensor, weight: &Tensor) -> Result<()> {
    // SAFETY: the tensors are borrowed until the call ends, and the one that it changes is nobody else's.
    checked(|error| unsafe { metaclaw_add_product(error, sum.as_mut_ptr(), raw(x), raw(weight)) })
}

// === impl Part ===

impl Part {
    /// How many pairs of a query and a key are computed.
    pub(crate) fn n_scores(&self) -> i64 {
        if self.causal == 1 {
            self.n_q * (self.n_q + 1) / 2
        } else {
            self.n_q * self.n_k
        }
    }
}

// === impl PlainCalls ===

impl PlainCalls {
    pub(crate) fn begin() -> Self {
        // SAFETY: it has no conditions.
        Self(unsafe { metaclaw_plain_calls_begin() })
    }
}

impl Drop for PlainCalls {
    fn drop(&mut self) {
        // SAFETY: it is what the call of the beginning gave, once, and on the same thread: a pointer is not `Send`.
        unsafe { metaclaw_plain_calls_end(self.0) };
    }
}

/// The functions only read the tensors that they are given so.
fn raw(tensor: &Tensor) -> Raw {
    tensor.as_ptr().cast_mut()
}

fn checked<T>(call: impl FnOnce(*mut c_char) -> T) -> Result<T> {
    let mut error = [0; ERROR_LENGTH];
    let result = call(error.as_mut_ptr());
    if error[0] == 0 {
        return Ok(result);
    }
    // SAFETY: the functions write less than the whole buffer, which was zeros.
    let text = unsafe { CStr::from_ptr(error.as_ptr()) };
    Err(TchError::Torch(text.to_string_lossy().into_owned()))
}
