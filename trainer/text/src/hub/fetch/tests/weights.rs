//! Tests of complete models.

use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};

use std::collections::BTreeSet;

use super::*;
use crate::hub::whole;

/// Makes a shard in which each byte differs from the one before, so that a wrong offset changes the content.
fn shard(seed: u8, n: usize) -> &'static [u8] {
    let small = |n: usize| u8::try_from(n % 251).unwrap();
    let byte = |at: usize| small(at) ^ small(at / 251) ^ seed;
    Vec::leak((0..n).map(byte).collect())
}

const SHARDS: [&str; 2] = [
    "model-00001-of-00002.safetensors",
    "model-00002-of-00002.safetensors",
];
const INDEX: &[u8] = br#"{"metadata": {}, "weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors", "c": "model-00001-of-00002.safetensors"}}"#;

fn in_shards() -> Site {
    let mut site = Site::usual();
    site.small.insert("model.safetensors.index.json", INDEX);
    site.large.insert(SHARDS[0], shard(1, 300_000));
    site.large.insert(SHARDS[1], shard(2, 200_000));
    // Nobody loads these files.
    site.large.insert("pytorch_model.bin", b"pickle");
    site
}

impl Rig {
    async fn fetch_model(&self) -> Result<PathBuf, HubError> {
        self.hub.fetch_model(&tiny(), &|_| {}).await
    }

    fn whole(&self) -> Option<PathBuf> {
        whole(self.hub.cache(), &tiny())
    }
}

#[tokio::test]
async fn all_that_loading_takes_is_fetched_and_nothing_else() {
    let rig = rig(in_shards(), None);
    // Its text files alone are not a complete model.
    rig.fetch("own/tiny").await.unwrap();
    assert_eq!(rig.whole(), None);
    let folder = rig.fetch_model().await.unwrap();
    assert_eq!(rig.whole(), Some(folder.clone()));
    let entries = std::fs::read_dir(&folder).unwrap();
    let each = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let names: BTreeSet<String> = each.collect();
    let texts = ["config.json", "tokenizer.json", "tokenizer_config.json"];
    let weights = [SHARDS[0], SHARDS[1], "model.safetensors.index.json"];
    let expected = texts.into_iter().chain(weights).map(str::to_owned);
    assert_eq!(names, expected.collect());
    for name in SHARDS {
        holds(&folder, name, rig.site.large[name]);
    }
    // What is whole is not asked about.
    let n_asked = rig.asked().len();
    assert_eq!(rig.fetch_model().await.unwrap(), folder);
    assert_eq!(rig.asked().len(), n_asked);
}

#[tokio::test]
async fn weights_in_one_file_are_fetched() {
    let mut site = Site::usual();
    let weights = shard(3, 1_000);
    site.large.insert("model.safetensors", weights);
    let ends = b"{\"eos_token_id\": 2}";
    site.small.insert("generation_config.json", ends);
    let rig = rig(site, None);
    let folder = rig.fetch_model().await.unwrap();
    holds(&folder, "generation_config.json", ends);
    holds(&folder, "model.safetensors", weights);
}

/// Each time the process ends, as if it were killed, and another one continues.
#[tokio::test]
async fn what_broke_off_at_ten_random_points_goes_on_and_is_whole() {
    let seed = 7;
    let mut random = StdRng::seed_from_u64(seed);
    let rig = rig(in_shards(), None);
    rig.fetch("own/tiny").await.unwrap();
    *rig.site.n_sent.lock().unwrap() = 0;
    for at in 0..10 {
        // The tries after the first one receive nothing.
        let cut = random.random_range(0..40_000);
        *rig.site.cuts.lock().unwrap() = VecDeque::from([cut, 0, 0, 0, 0, 0]);
        let mut next = rig.hub.clone();
        next.pause = Duration::ZERO;
        let error = next.fetch_model(&tiny(), &|_| {}).await.unwrap_err();
        let is_cut = error.to_string().contains("cannot be reached");
        assert!(is_cut, "seed {seed}, {at}: {error}");
        assert_eq!(rig.whole(), None);
    }
    rig.site.cuts.lock().unwrap().clear();
    let folder = rig.fetch_model().await.unwrap();
    for name in SHARDS {
        holds(&folder, name, rig.site.large[name]);
    }
    // No byte was sent twice.
    assert_eq!(*rig.site.n_sent.lock().unwrap(), 500_000, "seed {seed}");
}

#[tokio::test]
async fn a_connection_that_keeps_breaking_off_is_gone_on_with() {
    let rig = rig(in_shards(), None);
    rig.fetch("own/tiny").await.unwrap();
    *rig.site.cuts.lock().unwrap() = (0..20).map(|_| 9_000).collect();
    rig.fetch_model().await.unwrap();
}

#[tokio::test]
async fn weights_that_are_not_what_was_announced_are_not_kept() {
    let rig = rig(in_shards(), None);
    rig.fetch("own/tiny").await.unwrap();
    // Half of it belongs to another file.
    let partial = rig.partial(shard(1, 300_000));
    std::fs::write(&partial, vec![7; 1_000]).unwrap();
    let error = rig.fetch_model().await.unwrap_err().to_string();
    assert!(error.contains("its SHA-256 is"), "{error}");
    assert!(!partial.exists());
    rig.fetch_model().await.unwrap();
}

#[tokio::test]
async fn a_disk_without_room_is_told_before_anything_is_fetched() {
    let mut site = in_shards();
    site.huge = Some(SHARDS[1]);
    let rig = rig(site, None);
    let error = rig.fetch_model().await.unwrap_err();
    let HubError::NoRoom { needed, free, .. } = &error else {
        panic!("{error}");
    };
    assert!(*needed > 1_000_000_000_000_000 && *free < *needed);
    let said = error.to_string();
    let begins = said.starts_with("own/tiny: 1000.0 TB are to be fetched into ");
    assert!(begins && said.contains(" are free: free "), "{said}");
    let asked = rig.asked().concat();
    assert!(!asked.contains("/bytes/model-"), "{asked}");
}

#[tokio::test]
async fn a_disk_that_becomes_full_is_told() {
    let rig = rig(in_shards(), None);
    rig.fetch("own/tiny").await.unwrap();
    let partial = rig.partial(shard(1, 300_000));
    // All writes to this file of the system fail because of a full disk.
    std::os::unix::fs::symlink("/dev/full", &partial).unwrap();
    let error = rig.fetch_model().await.unwrap_err();
    assert!(matches!(error, HubError::Full { .. }), "{error}");
    assert!(error.to_string().contains("the disk is full"), "{error}");
}

#[tokio::test]
async fn what_is_no_model_is_told_in_words() {
    let mut without_weights = Site::usual();
    without_weights.large.insert("model.gguf", b"GGUF");
    let mut without_config = in_shards();
    without_config.small.remove("config.json");
    let mut elsewhere = in_shards();
    let escapes = br#"{"weight_map": {"a": "../../../escape.safetensors"}}"#;
    let index = "model.safetensors.index.json";
    elsewhere.small.insert(index, escapes);
    let mut without_shard = in_shards();
    without_shard.large.remove(SHARDS[1]);
    let mut told = Vec::new();
    for site in [without_weights, without_config, elsewhere, without_shard] {
        let error = rig(site, None).fetch_model().await.unwrap_err();
        told.push(error.to_string());
    }
    insta::assert_snapshot!(told.join("\n"), @r#"
    own/tiny has neither model.safetensors nor model.safetensors.index.json at the hub: weights of other forms are not read; give a model that has them, or a GGUF file by its path
    own/tiny has no config.json at the hub: it is no model in Hugging Face form
    model.safetensors.index.json of own/tiny answers what is no hub's: it names "../../../escape.safetensors", which is no file of safetensors beside it
    model.safetensors.index.json of own/tiny answers what is no hub's: it names model-00002-of-00002.safetensors, which is not at the hub
    "#);
}
