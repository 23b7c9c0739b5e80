//! Chooses the adapter for requests: one pointer per agent, and leases that show what is still in use.
//!
//! A new adapter becomes current by storing one pointer. Sessions and running replies hold a [`Lease`] on the adapter
//! that they began with. When the last lease of an adapter that is no agent's current one is dropped, the owner of this
//! object is notified, and may unload it. Nothing waits for anything.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use arc_swap::ArcSwapOption;
use metaclaw_chat::{AgentId, Secret};
use tokio::sync::watch;

use crate::{
    address::{AddressError, UpstreamAddress},
    lock::lock,
};

/// The address of the policy model's server, and how to send requests to it.
#[derive(Debug, Clone)]
pub struct Endpoint {
    pub(crate) address: UpstreamAddress,
    pub(crate) key: Option<Secret>,
    pub(crate) base: String,
    pub(crate) appends_system: bool,
    pub(crate) is_by_account: bool,
    silent: watch::Sender<bool>,
}

/// The pointers to adapters. Clone the `Arc`.
#[derive(derive_more::Debug)]
#[debug("Serving({:?}, {:?})", self.policy(), self.in_use())]
pub struct Serving {
    policy: ArcSwapOption<Endpoint>,
    adapters: Mutex<AdaptersInUse>,
    on_idle: Arc<dyn Fn(&str) + Send + Sync>,
    /// Each running chat holds a clone.
    chats: Arc<()>,
}

#[derive(Default)]
struct AdaptersInUse {
    current: HashMap<AgentId, Arc<AdapterInUse>>,
    /// Every adapter that is held, so that the same name is the same object.
    held: HashMap<Arc<str>, Weak<AdapterInUse>>,
    n_choices: HashMap<AgentId, u64>,
}

struct AdapterInUse {
    name: Arc<str>,
    /// Whether it cannot be served. Then its holders are answered by the base model.
    is_withdrawn: AtomicBool,
    on_idle: Arc<dyn Fn(&str) + Send + Sync>,
}

/// The right to keep using one adapter, or the base model if there is none.
#[derive(derive_more::Debug, Clone)]
#[debug("Lease({:?})", self.adapter())]
pub struct Lease {
    adapter: Option<Arc<AdapterInUse>>,
    /// How often the owner had chosen an adapter when it was taken.
    n_choices: u64,
}

// === impl Lease ===

impl Lease {
    /// Makes a lease on the base model, which needs no right.
    pub(crate) fn of_base() -> Self {
        Self {
            adapter: None,
            n_choices: 0,
        }
    }
}

// === impl Endpoint ===

impl Endpoint {
    /// Makes the address of a server of the policy model at `url` (its root, or with `/v1`), which calls the model
    /// without an adapter `base`.
    ///
    /// # Errors
    ///
    /// Returns [`AddressError`] unless `url` is an http(s) address.
    pub fn new(url: &str, key: Option<Secret>, base: &str) -> Result<Self, AddressError> {
        let mut address: UpstreamAddress = url.parse()?;
        address.ensure_v1();
        Ok(Self {
            address,
            key,
            base: base.to_owned(),
            appends_system: false,
            is_by_account: false,
            silent: watch::Sender::new(false),
        })
    }

    /// Returns whether its server has stopped answering, although nobody removed it.
    pub(crate) fn is_silent(&self) -> bool {
        *self.silent.borrow()
    }

    pub(crate) fn set_silent(&self, is_silent: bool) {
        let was_silent = self.silent.send_replace(is_silent);
        match (was_silent, is_silent) {
            (false, true) => tracing::warn!("the policy model's server does not answer"),
            (true, false) => tracing::info!("the policy model's server answers again"),
            (false, false) | (true, true) => {}
        }
    }

    pub(crate) async fn falls_silent(&self) {
        // The sender exists here, so there is no error.
        let _ = self.silent.subscribe().wait_for(|silent| *silent).await;
    }

    /// Marks it as our own trainer, which appends lessons to its template's default system prompt.
    #[must_use]
    pub fn with_system_append(mut self) -> Self {
        self.appends_system = true;
        self
    }

    /// Marks it as used through an account at a provider. If the provider refuses because of its key, credit or limits,
    /// another upstream is tried.
    #[must_use]
    pub fn by_account(mut self) -> Self {
        self.is_by_account = true;
        self
    }
}

// === impl Serving ===

impl Serving {
    /// Starts without a policy server and adapters. `on_idle` gets the name of an adapter that is not used any more. It
    /// runs wherever the last lease was dropped, and must not block.
    ///
    /// An adapter may become current again while `on_idle` runs. Unloading it must then only cost a reload.
    pub fn new(on_idle: impl Fn(&str) + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            policy: ArcSwapOption::empty(),
            adapters: Mutex::default(),
            on_idle: Arc::new(on_idle),
            chats: Arc::default(),
        })
    }

    /// Returns what a chat holds until its reply has ended.
    pub(crate) fn chat_begins(&self) -> Arc<()> {
        Arc::clone(&self.chats)
    }

    /// Returns whether a chat is running; rollouts do not count.
    pub fn has_chats(&self) -> bool {
        Arc::strong_count(&self.chats) > 1
    }

    /// Sets the policy model's server, or `None` while it is down.
    pub fn set_policy(&self, endpoint: Option<Endpoint>) {
        self.policy.store(endpoint.map(Arc::new));
    }

    /// Returns the policy model's present server.
    pub fn policy(&self) -> Option<Arc<Endpoint>> {
        self.policy.load_full()
    }

    /// Returns whether the policy model's server has stopped answering.
    pub fn is_silent(&self) -> bool {
        let policy = self.policy.load();
        policy.as_ref().is_some_and(|endpoint| endpoint.is_silent())
    }

    /// Makes an adapter an agent's current one. `None` is the base model.
    pub fn set(&self, agent: &AgentId, adapter: Option<&str>) {
        let mut adapters = lock(&self.adapters);
        let replaced = adapters.set(agent, adapter, &self.on_idle);
        // Its `Drop` notifies the owner, who may call back.
        drop(adapters);
        drop(replaced);
    }

    /// Does the same by the owner's choice: sessions that began with another adapter change at their next request too.
    /// Running replies end as they began.
    pub fn choose(&self, agent: &AgentId, adapter: Option<&str>) {
        let mut adapters = lock(&self.adapters);
        *adapters.n_choices.entry(agent.clone()).or_default() += 1;
        let replaced = adapters.set(agent, adapter, &self.on_idle);
        drop(adapters);
        drop(replaced);
    }

    /// Withdraws an adapter that cannot be served: its agents, and the sessions that began with it, use the base model
    /// from now on.
    pub fn withdraw(&self, name: &str) {
        let mut adapters = lock(&self.adapters);
        let held = adapters.held.remove(name).and_then(|held| held.upgrade());
        if let Some(adapter) = &held {
            adapter.is_withdrawn.store(true, Ordering::Relaxed);
        }
        let all = &mut adapters.current;
        all.retain(|_, adapter| *adapter.name != *name);
        // This comes last, as in `set`: `held` keeps the removed leases from being dropped before.
        drop(adapters);
        drop(held);
    }

    /// Returns an agent's current adapter.
    pub fn current(&self, agent: &AgentId) -> Option<Arc<str>> {
        let adapters = lock(&self.adapters);
        let current = adapters.current.get(agent);
        current.map(|adapter| Arc::clone(&adapter.name))
    }

    /// Takes a lease on the agent's current adapter.
    pub fn lease(&self, agent: &AgentId) -> Lease {
        lock(&self.adapters).lease(agent)
    }

    /// Takes a lease on an adapter by name, whether or not it is an agent's current one.
    pub(crate) fn lease_on(&self, agent: &AgentId, adapter: &str) -> Lease {
        let mut adapters = lock(&self.adapters);
        let held = adapters.hold(adapter, &self.on_idle);
        Lease {
            adapter: Some(held),
            ..adapters.lease(agent)
        }
    }

    /// Returns a new lease, if the owner has chosen an adapter since this one was taken.
    pub fn renewed(&self, agent: &AgentId, lease: &Lease) -> Option<Lease> {
        let adapters = lock(&self.adapters);
        let now = adapters.lease(agent);
        (now.n_choices != lease.n_choices).then_some(now)
    }

    /// Returns the adapters that are current or leased, with their number of holders.
    pub fn in_use(&self) -> Vec<(Arc<str>, usize)> {
        let adapters = lock(&self.adapters);
        let held = adapters.held.iter();
        let in_use = held.map(|(name, adapter)| (Arc::clone(name), adapter.strong_count()));
        let mut in_use: Vec<_> = in_use.filter(|(_, n_leases)| *n_leases > 0).collect();
        in_use.sort_unstable();
        in_use
    }
}

// === impl AdaptersInUse ===

impl AdaptersInUse {
    /// Makes an adapter current. The caller drops the previous one.
    fn set(
        &mut self,
        agent: &AgentId,
        adapter: Option<&str>,
        on_idle: &Arc<dyn Fn(&str) + Send + Sync>,
    ) -> Option<Arc<AdapterInUse>> {
        match adapter {
            Some(name) => {
                let adapter = self.hold(name, on_idle);
                self.current.insert(agent.clone(), adapter)
            }
            None => self.current.remove(agent),
        }
    }

    fn lease(&self, agent: &AgentId) -> Lease {
        Lease {
            adapter: self.current.get(agent).cloned(),
            n_choices: self.n_choices.get(agent).copied().unwrap_or_default(),
        }
    }

    fn hold(&mut self, name: &str, on_idle: &Arc<dyn Fn(&str) + Send + Sync>) -> Arc<AdapterInUse> {
        if let Some(adapter) = self.held.get(name).and_then(Weak::upgrade) {
            return adapter;
        }
        self.held.retain(|_, adapter| adapter.strong_count() > 0);
        let adapter = Arc::new(AdapterInUse {
            name: name.into(),
            is_withdrawn: AtomicBool::new(false),
            on_idle: Arc::clone(on_idle),
        });
        self.held
            .insert(Arc::clone(&adapter.name), Arc::downgrade(&adapter));
        adapter
    }
}

// === impl AdapterInUse ===

impl Drop for AdapterInUse {
    fn drop(&mut self) {
        (self.on_idle)(&self.name);
    }
}

// === impl Lease ===

impl Lease {
    /// Returns the adapter's name, or `None` for the base model.
    pub fn adapter(&self) -> Option<&str> {
        let adapter = self.adapter.as_ref()?;
        let is_served = !adapter.is_withdrawn.load(Ordering::Relaxed);
        is_served.then_some(&*adapter.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chat_is_running_until_all_that_it_holds_is_dropped() {
        let serving = Serving::new(|_| {});
        assert!(!serving.has_chats());
        let (one, other) = (serving.chat_begins(), serving.chat_begins());
        drop(one);
        assert!(serving.has_chats());
        drop(other);
        assert!(!serving.has_chats());
    }

    #[test]
    fn an_adapter_is_idle_when_its_last_lease_drops_and_nobody_has_it_as_current() {
        let idle = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&idle);
        let serving = Serving::new(move |name| seen.lock().unwrap().push(name.to_owned()));
        let (one, two) = ("one".parse().unwrap(), "two".parse().unwrap());
        serving.set(&one, Some("a1"));
        serving.set(&two, Some("a1"));
        let lease = serving.lease(&one);
        let same = lease.clone();
        serving.set(&one, Some("a2"));
        assert_eq!(lease.adapter(), Some("a1"));
        assert_eq!(serving.current(&one).as_deref(), Some("a2"));
        drop(lease);
        serving.set(&two, None);
        assert!(idle.lock().unwrap().is_empty());
        drop(same);
        assert_eq!(*idle.lock().unwrap(), ["a1"]);
        assert_eq!(serving.lease(&two).adapter(), None);
        serving.set(&one, Some("a2"));
        assert_eq!(idle.lock().unwrap().len(), 1);
        assert_eq!(serving.in_use(), [(Arc::from("a2"), 1)]);
    }

    #[test]
    fn what_the_owner_chooses_takes_the_place_of_leases_and_what_a_step_makes_does_not() {
        let serving = Serving::new(|_| {});
        let (agent, other) = ("one".parse().unwrap(), "two".parse().unwrap());
        serving.set(&agent, Some("a1"));
        let lease = serving.lease(&agent);
        serving.set(&agent, Some("a2"));
        assert!(serving.renewed(&agent, &lease).is_none());
        serving.choose(&other, Some("a1"));
        assert!(serving.renewed(&agent, &lease).is_none());
        serving.choose(&agent, None);
        let now = serving.renewed(&agent, &lease).unwrap();
        assert_eq!((lease.adapter(), now.adapter()), (Some("a1"), None));
        assert!(serving.renewed(&agent, &now).is_none());
    }

    #[test]
    fn a_withdrawn_adapter_is_asked_for_by_nobody_until_it_is_set_again() {
        let serving = Serving::new(|_| {});
        let agent = "one".parse().unwrap();
        serving.set(&agent, Some("a1"));
        let lease = serving.lease(&agent);
        serving.withdraw("a1");
        assert_eq!((lease.adapter(), serving.current(&agent)), (None, None));
        serving.withdraw("a2");
        serving.set(&agent, Some("a1"));
        assert_eq!(serving.lease(&agent).adapter(), Some("a1"));
        assert_eq!(lease.adapter(), None);
    }
}
