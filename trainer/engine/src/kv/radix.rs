//! The prefix cache: which ids each page holds, for each adapter.
//!
//! Pages form a tree in which the path from a root spells the ids. Running sequences hold the pages that they share. An
//! idle page stays until its room is needed. The least recently used leaf goes first.

use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

use super::PAGE;
use super::states::StateSlot;

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
    /// The state after its last position, and when that was used last.
    state: Option<(u64, Rc<StateSlot>)>,
}

#[derive(Debug, Default)]
pub(super) struct RadixTree {
    nodes: Vec<Option<Node>>,
    vacant: Vec<NodeId>,
    roots: HashMap<WeightsKey, HashMap<PageIds, NodeId>>,
    /// Idle leaves by their last use.
    idle_leaves: BTreeSet<(u64, NodeId)>,
    n_idle: usize,
    /// Nodes with a state, by its last use.
    states: BTreeSet<(u64, NodeId)>,
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
            state: None,
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
        if let Some((used, _)) = &node.state {
            self.states.remove(&(*used, id));
        }
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

    pub(super) fn has_state(&self, id: NodeId) -> bool {
        self.node(id).is_some_and(|node| node.state.is_some())
    }

    /// The state after a node, from which somebody goes on now.
    pub(super) fn use_state(&mut self, id: NodeId) -> Option<Rc<StateSlot>> {
        let slot = Rc::clone(&self.node(id)?.state.as_ref()?.1);
        self.forget_state(id);
        self.keep_state(id, Rc::clone(&slot));
        Some(slot)
    }

    /// Keeps a state, unless there is one already.
    pub(super) fn keep_state(&mut self, id: NodeId, slot: Rc<StateSlot>) {
        self.clock += 1;
        let used = self.clock;
        if let Some(node) = self.nodes[id].as_mut()
            && node.state.is_none()
        {
            node.state = Some((used, slot));
            self.states.insert((used, id));
        }
    }

    /// Forgets the state that was not used for longest. Returns false if there is none.
    pub(super) fn evict_state(&mut self) -> bool {
        let Some(&(_, id)) = self.states.first() else {
            return false;
        };
        self.forget_state(id);
        true
    }

    fn forget_state(&mut self, id: NodeId) {
        if let Some(node) = self.nodes[id].as_mut()
            && let Some((used, _)) = node.state.take()
        {
            self.states.remove(&(used, id));
        }
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
