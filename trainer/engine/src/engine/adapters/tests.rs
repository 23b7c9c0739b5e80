use std::fs;
use std::sync::Arc;

use tch::Tensor;

use super::*;
use crate::adapter::{self, BaseSpec};
use crate::lora::Projection;
use crate::placement::Placement;
use crate::tests::{DIMS, base_id, lora_spec, parsed as name};

/// The size of an adapter of rank 2 on q, in two layers.
const BYTES: usize = 2 * (8 + 8) * 2 * 4;

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn base() -> BaseSpec {
        let (id, dims, n_layers) = (base_id("tiny"), DIMS, 2);
        BaseSpec { id, dims, n_layers }
    }

    fn save(&self, text: &str, seed: u64) {
        let spec = lora_spec(2, 32, vec![Projection::Q]);
        let lora = Lora::init(spec, DIMS, 2, seed).unwrap();
        adapter::save(self.0.path(), &name(text), &lora, &Self::base().id, 1).unwrap();
    }

    /// Makes a pool with room for `n` adapters.
    fn pool(&self, n: usize) -> AdapterPool {
        let folder = self.0.path().to_owned();
        let placement = Placement::on(tch::Device::Cpu);
        AdapterPool::new(folder, Arc::new(Self::base()), placement, n * BYTES)
    }
}

fn names(pool: &AdapterPool) -> Vec<String> {
    let name = |lease: &AdapterLease| lease.name().to_string();
    pool.loaded().iter().map(name).collect()
}

#[test]
fn the_least_recently_asked_for_makes_room() {
    let place = Place::new();
    let pool = place.pool(2);
    for (seed, name) in ["a", "b", "c"].into_iter().enumerate() {
        place.save(name, seed as u64);
    }
    assert_eq!(pool.load(&name("a")).unwrap().bytes(), BYTES);
    pool.load(&name("b")).unwrap();
    pool.load(&name("a")).unwrap();
    assert_eq!(pool.bytes(), 2 * BYTES);
    pool.load(&name("c")).unwrap();
    assert_eq!(names(&pool), ["a", "c"]);
    assert_eq!(pool.bytes(), 2 * BYTES);
}

#[test]
fn what_is_held_stays_and_leaves_with_its_last_lease() {
    let place = Place::new();
    let pool = place.pool(1);
    place.save("a", 1);
    place.save("b", 2);
    let (lease, mut served) = (pool.load(&name("a")).unwrap(), Vec::new());
    let reply = ServedAdapter::of(&lease, &mut served).unwrap();
    assert!(pool.is_in_use(&name("a")));
    let error = pool.load(&name("b")).unwrap_err();
    insta::assert_snapshot!(error, @r#"adapter "b" takes 256 bytes of memory, adapters in use leave 0 of 256: try again when their replies have ended"#);
    assert!(pool.unload(&name("a")));
    // The reply that has it, or waits with it, still finds it, and no other does.
    assert!(pool.held(&name("a")).is_ok() && pool.is_in_use(&name("a")));
    assert!(pool.ready(&name("a")).is_none());
    assert_eq!(pool.bytes(), BYTES);
    drop((lease, reply));
    assert!(pool.held(&name("a")).is_err() && !pool.is_in_use(&name("a")));
    assert_eq!(pool.bytes(), 0);
    pool.load(&name("b")).unwrap();
}

#[test]
fn replies_share_what_they_are_made_with() {
    let place = Place::new();
    let pool = place.pool(1);
    place.save("a", 1);
    let mut served = Vec::new();
    let mut of = |pool: &AdapterPool| {
        let lease = pool.load(&name("a")).unwrap();
        ServedAdapter::of(&lease, &mut served).unwrap()
    };
    let (one, two) = (of(&pool), of(&pool));
    assert!(Rc::ptr_eq(&one, &two));
    drop((one, two));
    of(&pool);
    assert_eq!(served.len(), 1);
}

#[test]
fn the_same_content_has_the_same_key_whenever_it_is_read() {
    let place = Place::new();
    let pool = place.pool(1);
    place.save("a", 1);
    place.save("b", 2);
    let key = |text: &str| {
        let lease = pool.load(&name(text)).unwrap();
        (lease.key(), lease.sha256().to_owned())
    };
    let (a, b) = (key("a"), key("b"));
    assert_ne!(a, b);
    assert_ne!(a.0, 0);
    assert_eq!(key("a"), a, "evicted and read again");
    place.save("b", 1);
    assert_eq!(key("b"), a);
}

/// Rewrites a file in place with the same length and modification time. Only the time of the change itself differs,
/// which the system keeps in ticks.
fn rewrite(file: &std::path::Path, bytes: &[u8]) {
    use std::os::unix::fs::MetadataExt as _;
    let before = fs::metadata(file).unwrap();
    let changed = |it: &fs::Metadata| (it.ctime(), it.ctime_nsec());
    while changed(&fs::metadata(file).unwrap()) == changed(&before) {
        fs::write(file, bytes).unwrap();
        let open = fs::File::options().write(true).open(file).unwrap();
        open.set_modified(before.modified().unwrap()).unwrap();
    }
    let after = fs::metadata(file).unwrap();
    assert_eq!(after.len(), before.len());
    assert_eq!(after.modified().unwrap(), before.modified().unwrap());
}

#[test]
fn a_changed_adapter_is_told_by_its_content_alone() {
    let place = Place::new();
    let pool = place.pool(4);
    place.save("a", 1);
    place.save("b", 2);
    let folder = |text: &str| adapter::folder_of(place.0.path(), &name(text));
    let first = pool.load(&name("a")).unwrap();

    let tensors = "adapter_model.safetensors";
    let other = fs::read(folder("b").join(tensors)).unwrap();
    rewrite(&folder("a").join(tensors), &other);
    let second = pool.load(&name("a")).unwrap();
    assert_eq!(second.sha256(), pool.load(&name("b")).unwrap().sha256());
    assert_ne!(second.sha256(), first.sha256());

    let config = folder("a").join("adapter_config.json");
    let text = fs::read_to_string(&config).unwrap();
    rewrite(&config, text.replace(": 32,", ": 64,").as_bytes());
    let third = pool.load(&name("a")).unwrap();
    assert_ne!(third.sha256(), second.sha256());
    let b = |lease: &AdapterLease| -> Tensor {
        let lora = lease.lora();
        let pair = lora.layer(0).unwrap().get(Projection::Q);
        pair.unwrap().a.shallow_clone()
    };
    assert!(b(&third).equal(&b(&second)));

    // Written again with the same content, it is the same adapter, and no second one is loaded.
    let again = third.clone();
    rewrite(&config, &fs::read(&config).unwrap());
    assert!(pool.load(&name("a")).unwrap().is(&again));
}

#[test]
fn an_adapter_that_is_gone_or_replaced_is_not_served_from_memory() {
    let place = Place::new();
    let pool = place.pool(4);
    place.save("a", 1);
    let one = pool.load(&name("a")).unwrap();
    place.save("a", 2);
    assert_ne!(pool.load(&name("a")).unwrap().sha256(), one.sha256());
    fs::remove_dir_all(place.0.path().join("adapters/a")).unwrap();
    let error = pool.load(&name("a")).unwrap_err();
    assert!(matches!(error, AdapterError::Unknown { .. }), "{error}");
}
