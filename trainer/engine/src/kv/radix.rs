//! The prefix cache: which ids each page holds, for each adapter.
//!
//! Pages form a tree in which the path from a root spells the ids. Running sequences hold the pages that they share. An
//! idle page stays until its room is needed. The least recently used leaf goes first.

use std::collections::{BTreeSet, HashMap};

use super::PAGE;

/// Which weights keys and values were made with: 0 is the base.
pub(crate) type WeightsKey = u64;

pub(super) type NodeId = usize;

type PageIds = [u32; PAGE];

#[derive(Debug)]
struct Node {
    page: usize,
    key: WeightsKey,
    ids: PageIds,
    parent: Option<NodeId>,
    children: HashMap<PageIds, NodeId>,
    /// Running sequences whose path leads here or through here.
    n_users: usize,
    last_used: u64,
}

#[derive(Debug, Default)]
pub(super) struct RadixTree {
    nodes: Vec<Option<Node>>,
    vacant: Vec<NodeId>,
    roots: HashMap<WeightsKey, HashMap<PageIds, NodeId>>,
    /// Idle leaves by their last use.
    idle_leaves: BTreeSet<(u64, NodeId)>,
    n_idle: usize,
    clock: u64,
}

impl RadixTree {
    /// The number of idle pages. All of them can be evicted, leaves first.
    pub(super) fn n_idle(&self) -> usize {
        self.n_idle
    }

    /// The node below `parent` (a root of `key` where `None`) that holds the first page of `ids`, and its page.
    pub(super) fn find(
        &self,
        key: WeightsKey,
        parent: Option<NodeId>,
        ids: &[u32],
    ) -> Option<(NodeId, usize)> {
        let ids: &PageIds = ids.first_chunk()?;
        let children = match parent {
            Some(parent) => &self.node(parent)?.children,
            None => self.roots.get(&key)?,
        };
        let id = *children.get(ids)?;
        Some((id, self.node(id)?.page))
    }

    /// Adds a page below `parent`, held once; `None` when `ids` is no whole page.
    pub(super) fn insert(
        &mut self,
        key: WeightsKey,
        parent: Option<NodeId>,
        ids: &[u32],
        page: usize,
    ) -> Option<NodeId> {
        let ids = *ids.first_chunk()?;
        let node = Node {
            page,
            key,
            ids,
            parent,
            children: HashMap::new(),
            n_users: 1,
            last_used: 0,
        };
        let id = self.vacant.pop().unwrap_or(self.nodes.len());
        if id == self.nodes.len() {
            self.nodes.push(None);
        }
        self.nodes[id] = Some(node);
        self.children_mut(key, parent).insert(ids, id);
        Some(id)
    }

    /// A sequence takes a node whose ancestors it holds already.
    pub(super) fn hold(&mut self, id: NodeId) {
        let Some(node) = self.nodes[id].as_mut() else {
            return;
        };
        node.n_users += 1;
        if node.n_users == 1 {
            self.n_idle -= 1;
            self.idle_leaves.remove(&(node.last_used, id));
        }
    }

    /// A sequence gives back the whole path that ends at a node.
    pub(super) fn release(&mut self, end: NodeId) {
        self.clock += 1;
        let mut next = Some(end);
        while let Some(id) = next {
            let Some(node) = self.nodes[id].as_mut() else {
                return;
            };
            next = node.parent;
            node.n_users -= 1;
            if node.n_users == 0 {
                node.last_used = self.clock;
                self.n_idle += 1;
                if node.children.is_empty() {
                    self.idle_leaves.insert((self.clock, id));
                }
            }
        }
    }

    pub(super) fn evict(&mut self) -> Option<usize> {
        let (_, id) = self.idle_leaves.pop_first()?;
        let node = self.nodes[id].take()?;
        self.vacant.push(id);
        self.n_idle -= 1;
        self.children_mut(node.key, node.parent).remove(&node.ids);
        match node.parent {
            Some(parent) => {
                if let Some(above) = self.node(parent)
                    && above.n_users == 0
                    && above.children.is_empty()
                {
                    self.idle_leaves.insert((above.last_used, parent));
                }
            }
            None => {
                self.roots.retain(|_, children| !children.is_empty());
            }
        }
        Some(node.page)
    }

    fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id)?.as_ref()
    }

    fn children_mut(
        &mut self,
        key: WeightsKey,
        parent: Option<NodeId>,
    ) -> &mut HashMap<PageIds, NodeId> {
        let above = parent.and_then(|parent| self.nodes[parent].as_mut());
        match above {
            Some(above) => &mut above.children,
            None => self.roots.entry(key).or_default(),
        }
    }
}
