//! Checkpoints and adapters of ours among what a server lists: found, saved, deleted.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use metaclaw_trainer_terms::ErrorCode;
use parking_lot::Mutex;
use reqwest::Method;
use serde_json::Value;

use super::{
    Flag, bodies,
    http::HttpRequest,
    manifests::{self, KeptManifest, Manifests},
    models::{ModelCalls, State, follows_api},
    session::get,
};
use crate::backend::Result;
use crate::{
    AdapterName, BackendError, CheckpointName,
    tinker::{
        ModelId, TinkerPath, WeightsKind,
        json::{Checkpoint, CheckpointList, SavedForSampler, SavedWeights, TrainingRunsReply},
    },
    wire::CheckpointInfo,
};

const PAGE: u64 = 100;
/// A list that is longer is not read to its end.
const MOST_PAGES: u64 = 200;

/// FastAPI's answer for a missing route.
const NO_ROUTE: &str = "Not Found";

#[derive(Debug)]
pub(super) struct Checkpoints {
    models: Arc<ModelCalls>,
    manifests: Manifests,
    adapters: Mutex<BTreeMap<String, Adapter>>,
    /// Whether the server stores a manifest beside a checkpoint. After a refusal this is not tried again.
    takes_manifests: Flag,
    /// Whether the owner was told that the server deletes nothing.
    is_told: Flag,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Adapter {
    /// `tinker://…/sampler_weights/…`.
    pub(super) path: String,
    pub(super) step: Option<u64>,
}

#[derive(Debug, Clone)]
pub(super) struct Listed {
    pub(super) name: String,
    mark: Option<String>,
    pub(super) path: TinkerPath,
    pub(super) time_ms: u64,
    pub(super) bytes: Option<u64>,
    metadata: BTreeMap<String, String>,
}

#[derive(Debug, Clone)]
pub(super) struct Own {
    pub(super) listed: Listed,
    pub(super) kept: KeptManifest,
}

// === impl Listed ===

impl Listed {
    pub(super) fn step(&self) -> Option<u64> {
        self.metadata.get(bodies::STEP)?.parse().ok()
    }

    /// Whether it is an adapter: weights to sample from, or what [`super::places`] makes such of.
    fn is_adapter(&self) -> bool {
        match self.path.kind {
            WeightsKind::Sampler => follows_api(&self.path.run),
            WeightsKind::Training => self.mark.is_none() && !follows_api(&self.path.run),
            WeightsKind::External => false,
        }
    }

    fn read(entry: Checkpoint) -> Option<Self> {
        let path: TinkerPath = entry.tinker_path.parse().ok()?;
        let (name, mark) = manifests::read_name(path.name.as_str())?;
        let text = |(key, value): (String, Value)| Some((key, value.as_str()?.to_owned()));
        let metadata = entry.user_metadata.unwrap_or_default();
        Some(Self {
            name,
            mark: mark.map(str::to_owned),
            time_ms: millis(&entry.time),
            bytes: entry.size_bytes,
            metadata: metadata.into_iter().filter_map(text).collect(),
            path,
        })
    }
}

/// ISO 8601 as Unix milliseconds; what has no zone is in UTC.
fn millis(time: &str) -> u64 {
    let parsed = time
        .parse::<jiff::Timestamp>()
        .or_else(|_| format!("{time}Z").parse());
    u64::try_from(parsed.map_or(0, jiff::Timestamp::as_millisecond)).unwrap_or(0)
}

// === impl Checkpoints ===

impl Checkpoints {
    pub(super) fn new(models: Arc<ModelCalls>, manifests: Manifests) -> Self {
        Self {
            models,
            manifests,
            adapters: Mutex::default(),
            takes_manifests: Flag::new(true),
            is_told: Flag::new(false),
        }
    }

    /// Saves the run's weights and optimiser, and returns their path.
    ///
    /// # Errors
    /// The server's, or that of the file in which the manifest is kept.
    pub(super) async fn save(
        &self,
        state: &mut State,
        name: &CheckpointName,
        manifest: Value,
    ) -> Result<String> {
        let call = "save_weights";
        let kept = KeptManifest {
            step: state.step,
            rank: state.spec.rank,
            manifest,
        };
        let kept_here = async {
            let owner = self.manifests.owner().await?;
            let mark = self.manifests.put(name.as_str(), kept.clone()).await?;
            std::io::Result::Ok((owner, mark))
        };
        let (owner, mark) = kept_here.await.map_err(|error| BackendError::Request {
            call,
            why: format!("its manifest cannot be written: {error}"),
        })?;
        let written = manifests::with_mark(name.as_str(), &mark);
        let short = BTreeMap::from([
            (bodies::OWNER, owner),
            (bodies::STEP, kept.step.to_string()),
        ]);
        let mut full = short.clone();
        full.insert(bodies::MANIFEST, kept.manifest.to_string());
        if self.takes_manifests.get() {
            match self.save_as(state, &written, &full).await {
                Err(error) if refuses_form(&error) => {
                    self.takes_manifests.set(false);
                    tracing::debug!(%error, "saved again without its manifest, which is kept here");
                }
                saved => return saved,
            }
        }
        self.save_as(state, &written, &short).await
    }

    async fn save_as(
        &self,
        state: &mut State,
        name: &str,
        metadata: &BTreeMap<&str, String>,
    ) -> Result<String> {
        let call = "save_weights";
        let model = self.models.standing(call, state).await?;
        let body = |id: &ModelId, seq| bodies::save(id, seq, name, metadata);
        let saved: SavedWeights = self.models.operate(model, call, body).await?;
        Ok(saved.path)
    }

    /// Saves the run's weights to be sampled from under a name; where they are.
    ///
    /// # Errors
    /// The server's.
    pub(super) async fn save_adapter(
        &self,
        state: &mut State,
        name: &AdapterName,
    ) -> Result<String> {
        let call = "save_weights_for_sampler";
        let owner = self.manifests.owner().await.unwrap_or_default();
        let metadata = BTreeMap::from([
            (bodies::OWNER, owner),
            (bodies::STEP, state.step.to_string()),
        ]);
        let written = manifests::escaped(name.as_str());
        let model = self.models.standing(call, state).await?;
        let path = if follows_api(&model.id) {
            let body = |id: &ModelId, seq| bodies::save_named(id, seq, &written, &metadata);
            let saved: SavedForSampler = self.models.operate(model, call, body).await?;
            let whose = self.models.http().whose(call);
            let path = saved.path;
            path.ok_or_else(|| whose.unreadable("it has no path"))?
        } else {
            // The adapter will be held by a separate model.
            self.save_as(state, &written, &metadata).await?
        };
        let adapter = Adapter {
            path: path.clone(),
            step: Some(state.step),
        };
        self.adapters.lock().insert(name.to_string(), adapter);
        Ok(path)
    }

    /// Finds an adapter of this name: those that are known first, then the server's list.
    ///
    /// # Errors
    /// The server's; 404 `model_not_found` where there is none of this name.
    pub(super) async fn adapter(&self, name: &str) -> Result<Adapter> {
        let known = || self.adapters.lock().get(name).cloned();
        if let Some(adapter) = known() {
            return Ok(adapter);
        }
        self.list_adapters().await?;
        known().ok_or_else(|| {
            let whose = self.models.http().whose("checkpoints");
            let why = format!("the server has no adapter {name}");
            whose.status(404, Some(ErrorCode::ModelNotFound), why)
        })
    }

    /// The names of the adapters that are known, without asking for more.
    pub(super) fn known(&self) -> Vec<AdapterName> {
        let adapters = self.adapters.lock();
        adapters
            .keys()
            .filter_map(|name| name.parse().ok())
            .collect()
    }

    /// Every adapter that may be ours, the newest of each name.
    ///
    /// # Errors
    /// The server's.
    pub(super) async fn list_adapters(&self) -> Result<Vec<Listed>> {
        let mut listed = self.list_all_kinds().await?;
        listed.retain(Listed::is_adapter);
        let listed = newest(listed, |listed| listed);
        let known = listed.iter().map(|listed| {
            let (path, step) = (listed.path.to_string(), listed.step());
            (listed.name.clone(), Adapter { path, step })
        });
        self.adapters.lock().extend(known);
        Ok(listed)
    }

    /// Every checkpoint of ours, oldest first; of one name the newest.
    ///
    /// # Errors
    /// The server's.
    pub(super) async fn own(&self) -> Result<Vec<Own>> {
        let owner = self.manifests.owner().await.ok();
        let mut own = Vec::new();
        for listed in self.list(WeightsKind::Training).await? {
            let told = listed.metadata.get(bodies::OWNER);
            if told.is_some() && told != owner.as_ref() {
                // This one belongs to another home with the same account.
                continue;
            }
            if let Some(kept) = self.kept(&listed).await {
                own.push(Own { listed, kept });
            }
        }
        let mut own = newest(own, |own| &own.listed);
        own.sort_by_key(|own| own.listed.time_ms);
        Ok(own)
    }

    /// The manifest of a checkpoint: the copy kept here, or else the server's, which has no rank.
    async fn kept(&self, listed: &Listed) -> Option<KeptManifest> {
        let mark = listed.mark.as_deref()?;
        if let Some(kept) = self.manifests.get(&listed.name, mark).await {
            return Some(kept);
        }
        let manifest = listed.metadata.get(bodies::MANIFEST)?;
        Some(KeptManifest {
            step: listed.step()?,
            rank: 0,
            manifest: serde_json::from_str(manifest).ok()?,
        })
    }

    /// Finds the checkpoint of this name or path.
    ///
    /// # Errors
    /// The server's; 404 where there is none.
    pub(super) async fn find(&self, name: &str) -> Result<Own> {
        let own = self.own().await?;
        let is_it = |own: &Own| own.listed.name == name || own.listed.path.to_string() == name;
        own.into_iter().rfind(is_it).ok_or_else(|| {
            let whose = self.models.http().whose("load_weights");
            let why = format!("the server has no checkpoint {name}");
            whose.status(404, Some(ErrorCode::CheckpointNotFound), why)
        })
    }

    /// Deletes our checkpoints except `keep` and the last `n_last` of each line. Returns the deleted names.
    ///
    /// # Errors
    /// The server's.
    pub(super) async fn prune(
        &self,
        keep: &BTreeSet<String>,
        n_last: usize,
    ) -> Result<Vec<CheckpointName>> {
        let all = self.own().await?;
        let mut last: BTreeMap<String, usize> = BTreeMap::new();
        let mut gone = Vec::new();
        for own in all.iter().rev() {
            let line = own.kept.manifest["agent"].as_str().unwrap_or_default();
            let n = last.entry(line.to_owned()).or_default();
            *n += 1;
            if *n > n_last && !keep.contains(&own.listed.name) {
                gone.push(own);
            }
        }
        gone.reverse();
        let adapters = if gone.is_empty() {
            Vec::new()
        } else {
            self.list(WeightsKind::Sampler).await?
        };
        let mut deleted = Vec::new();
        for own in gone {
            let name = &own.listed.name;
            let same = adapters.iter().filter(|adapter| adapter.name == *name);
            for path in same.map(|adapter| &adapter.path).chain([&own.listed.path]) {
                match self.delete(path).await {
                    Err(error) if error.is_not_supported() => {
                        if !self.is_told.get() {
                            tracing::warn!(%error, "old checkpoints stay at the training server: they have to be deleted there");
                        }
                        self.is_told.set(true);
                        return Ok(deleted);
                    }
                    done => done?,
                }
            }
            if let Some(mark) = &own.listed.mark {
                self.manifests.remove(name, mark).await;
            }
            self.adapters.lock().remove(name);
            deleted.extend(name.parse());
        }
        Ok(deleted)
    }

    async fn delete(&self, path: &TinkerPath) -> Result<()> {
        let call = "checkpoints/delete";
        let (run, id) = (&path.run, path.checkpoint_id());
        let at = format!("training_runs/{run}/checkpoints/{id}");
        let http = self.models.http();
        let request = HttpRequest::bare(call, Method::DELETE, &at);
        let answer = http.send(&request).await?;
        match answer.status {
            // The checkpoint was just listed, so a framework's plain 404 means that the route is missing.
            404 if super::words::read_refusal(&answer.body).0 == NO_ROUTE => {
                Err(http.whose(call).not_supported("deleting a checkpoint"))
            }
            200..300 | 404 => Ok(()),
            405 | 501 => Err(http.whose(call).not_supported("deleting a checkpoint")),
            status => Err(http.whose(call).refusal(status, &answer.body)),
        }
    }

    async fn list(&self, kind: WeightsKind) -> Result<Vec<Listed>> {
        let mut listed = self.list_all_kinds().await?;
        listed.retain(|entry| entry.path.kind == kind);
        Ok(listed)
    }

    async fn list_all_kinds(&self) -> Result<Vec<Listed>> {
        let entries = match self.list_all().await? {
            Some(entries) => entries,
            None => self.list_by_run().await?,
        };
        Ok(entries.into_iter().filter_map(Listed::read).collect())
    }

    async fn list_all(&self) -> Result<Option<Vec<Checkpoint>>> {
        let http = self.models.http();
        let mut all: Vec<Checkpoint> = Vec::new();
        for _ in 0..MOST_PAGES {
            let at = format!("checkpoints?limit={PAGE}&offset={}", all.len());
            let answer = http.send(&get("checkpoints", &at)).await?;
            if matches!(answer.status, 404 | 405) {
                return Ok(None);
            }
            let page: CheckpointList = answer.json(http.whose("checkpoints"))?;
            let n = page.checkpoints.len();
            all.extend(page.checkpoints);
            let total = page.cursor.map_or(0, |cursor| cursor.total_count);
            if n == 0 || all.len() as u64 >= total {
                break;
            }
        }
        Ok(Some(all))
    }

    /// The same list, collected run by run, as SkyRL needs it.
    async fn list_by_run(&self) -> Result<Vec<Checkpoint>> {
        let http = self.models.http();
        let (mut n_runs, mut all) = (0, Vec::new());
        for _ in 0..MOST_PAGES {
            let at = format!("training_runs?limit={PAGE}&offset={n_runs}");
            let answer = http.send(&get("training_runs", &at)).await?;
            let page: TrainingRunsReply = answer.json(http.whose("training_runs"))?;
            let n = page.training_runs.len() as u64;
            for run in page.training_runs {
                let at = format!("training_runs/{}/checkpoints", run.training_run_id);
                let answer = http.send(&get("checkpoints", &at)).await?;
                let of_run: CheckpointList = answer.json(http.whose("checkpoints"))?;
                all.extend(of_run.checkpoints);
            }
            n_runs += n;
            if n == 0 || n_runs >= page.cursor.total_count {
                break;
            }
        }
        Ok(all)
    }
}

fn newest<T>(mut all: Vec<T>, listed: impl Fn(&T) -> &Listed) -> Vec<T> {
    all.sort_by_key(|entry| listed(entry).time_ms);
    let named = all
        .into_iter()
        .map(|entry| (listed(&entry).name.clone(), entry));
    named
        .collect::<BTreeMap<String, T>>()
        .into_values()
        .collect()
}

/// Whether a server refused how a checkpoint is described, and not that it is made.
fn refuses_form(error: &BackendError) -> bool {
    let is_refused = matches!(error.status(), Some(400 | 413 | 422));
    is_refused && error.to_string().contains("metadata")
}

// === impl Own ===

impl Own {
    pub(super) fn info(self) -> Option<CheckpointInfo> {
        Some(CheckpointInfo {
            name: self.listed.name.parse().ok()?,
            path: self.listed.path.to_string(),
            step: self.kept.step,
            sha256: None,
            manifest: self.kept.manifest,
            created_ms: self.listed.time_ms,
        })
    }
}
