//! One look at a share: this home's skills are collected and copied into it, and the others' are read. Each skill of another
//! home becomes a proposal; those of another person wait for the owner's review.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File, TryLockError},
    io,
    sync::Arc,
};

use super::{
    SharePeer, ShareReport,
    index::{MAX_INDEX, MAX_TEXT, ReadIndex, ShareFile, ShareIndex, ShareKey, ShareStore, digest},
    publish::{Publication, PublishOptions},
    receive::unknown,
};
use crate::{
    config::ShareConfig,
    evolve::{EvolveError, Proposal, ProposalState},
    file::{WriterId, failed},
    library::Library,
};

/// A lock file beside the library. A process holds it while it shares skills.
const LOCK: &str = ".share.lock";
const MAX_WRITERS: usize = 100;

/// Shares a library's skills.
#[derive(Debug)]
pub struct ShareSync {
    library: Library,
    store: Box<dyn ShareStore>,
    options: PublishOptions,
    uploaded: BTreeMap<ShareFile, String>,
    /// Files of other homes that are not used, so that they are not read again while they stay the same.
    refused: BTreeMap<RefusedFile, String>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct RefusedFile {
    writer: WriterId,
    file: ShareFile,
    digest: String,
}

// === impl ShareSync ===

impl ShareSync {
    /// Shares the skills of `library` through `store`.
    pub fn new(
        library: Library,
        store: Box<dyn ShareStore>,
        config: &ShareConfig,
        key: Option<ShareKey>,
    ) -> Self {
        let options = PublishOptions {
            person: config.name.clone().unwrap_or_default(),
            agents: config.agents.clone(),
            key,
        };
        Self {
            library,
            store,
            options,
            uploaded: BTreeMap::new(),
            refused: BTreeMap::new(),
        }
    }

    /// Looks at the share once. Returns `None` if another process of this home does so at the moment. It accesses the
    /// file system, or waits for the network.
    ///
    /// # Errors
    /// Returns [`EvolveError`] if files of this home cannot be used. Problems with the share are in the report.
    pub fn sync(&mut self, now_ms: u64) -> Result<Option<ShareReport>, EvolveError> {
        let Some(_lock) = self.lock()? else {
            return Ok(None);
        };
        let publication = self.library.publication(&self.options, now_ms)?;
        let mut report = ShareReport {
            at_ms: now_ms,
            writer: Some(publication.writer.clone()),
            n_published: publication.skills.len(),
            withheld: publication.withheld.clone(),
            ..ShareReport::default()
        };
        if let Err(error) = self.upload(&publication) {
            let problem = format!("this home's skills could not be copied there: {error}");
            report.problems.push(problem);
        }
        match self.store.writers() {
            Ok(writers) => self.receive(&writers, &mut report)?,
            Err(error) => report
                .problems
                .push(format!("the share cannot be read: {error}")),
        }
        self.library.0.share.store(Some(Arc::new(report.clone())));
        Ok(Some(report))
    }

    fn lock(&self) -> Result<Option<File>, EvolveError> {
        let path = self.library.dir().join(LOCK);
        let mut options = File::options();
        let file = fs::create_dir_all(self.library.dir())
            .and_then(|()| options.write(true).create(true).truncate(false).open(&path));
        let locked = file.and_then(|file| match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        });
        Ok(locked.map_err(failed(path))?)
    }

    /// Copies this home's skills: first the texts, then the index, which names their hashes, so that a reader never
    /// takes half of a change. Files that it had shared before are removed at the end.
    fn upload(&mut self, publication: &Publication) -> io::Result<()> {
        let Publication {
            writer,
            index,
            skills,
            ..
        } = publication;
        let store = &self.store;
        let there = store.read(writer, &ShareFile::Index, MAX_INDEX);
        // Whatever is there now, it is replaced: nobody else may write it.
        let there = there.ok().flatten();
        if there.as_ref() == Some(index) && self.uploaded == *skills {
            return Ok(());
        }
        for (file, text) in skills {
            if store.read(writer, file, MAX_TEXT).ok().flatten().as_ref() != Some(text) {
                store.write(writer, file, text)?;
            }
        }
        if there.as_ref() != Some(index) {
            store.write(writer, &ShareFile::Index, index)?;
        }
        let before = there.and_then(|text| ShareIndex::read(&text, writer, None).ok());
        let listed = before.into_iter().flat_map(|read| read.index.skills);
        let listed = listed.map(|skill| skill.file());
        let gone: BTreeSet<ShareFile> = listed.chain(self.uploaded.keys().cloned()).collect();
        for file in gone.iter().filter(|file| !skills.contains_key(file)) {
            store.remove(writer, file)?;
        }
        self.uploaded.clone_from(skills);
        Ok(())
    }

    fn receive(
        &mut self,
        writers: &[WriterId],
        report: &mut ShareReport,
    ) -> Result<(), EvolveError> {
        let own = report.writer.clone();
        let others = writers.iter().filter(|w| Some(*w) != own.as_ref());
        let n_left_out = others.clone().count().saturating_sub(MAX_WRITERS);
        if n_left_out > 0 {
            report.problems.push(format!(
                "{n_left_out} homes are not read: at most {MAX_WRITERS} others are"
            ));
        }
        for writer in others.take(MAX_WRITERS) {
            match self.read_index(writer) {
                Ok(Some(peer)) => self.receive_from(&peer, report)?,
                Ok(None) => {}
                Err(why) => report.problems.push(format!("{writer}/index.json: {why}")),
            }
        }
        let proposals = self.library.proposals()?;
        for peer in &mut report.peers {
            count(peer, &proposals);
        }
        Ok(())
    }

    fn read_index(&self, writer: &WriterId) -> Result<Option<ReadIndex>, String> {
        let text = self.store.read(writer, &ShareFile::Index, MAX_INDEX);
        let Some(text) = text.map_err(|error| error.to_string())? else {
            return Ok(None);
        };
        ShareIndex::read(&text, writer, self.options.key.as_ref()).map(Some)
    }

    fn receive_from(
        &mut self,
        peer: &ReadIndex,
        report: &mut ShareReport,
    ) -> Result<(), EvolveError> {
        let index = &peer.index;
        report.peers.push(peer_of(peer));
        let of = |file: ShareFile, digest: &str| RefusedFile {
            writer: index.writer.clone(),
            file,
            digest: digest.to_owned(),
        };
        let mut texts = BTreeMap::new();
        let mut problems = BTreeMap::new();
        for skill in unknown(&self.library.proposals()?, peer) {
            let file = skill.file();
            let known = of(file.clone(), &skill.digest);
            if let Some(why) = self.refused.get(&known) {
                problems.insert(file, why.clone());
                continue;
            }
            let why = match self.store.read(&index.writer, &file, MAX_TEXT) {
                Ok(Some(text)) if skill.is_of(&text) => {
                    texts.insert(file, text);
                    continue;
                }
                Ok(Some(text)) => format!(
                    "its hash is {}, and the index says {}: it is not complete, or was changed",
                    short(&digest(&text)),
                    short(&skill.digest)
                ),
                Ok(None) => "it is not there yet".to_owned(),
                Err(error) => error.to_string(),
            };
            problems.insert(file, why);
        }
        let received = self.library.receive(peer, &texts, report.at_ms)?;
        for refused in received.refused {
            if !refused.digest.is_empty() {
                let known = of(refused.file.clone(), &refused.digest);
                self.refused.insert(known, refused.why.clone());
            }
            problems.insert(refused.file, refused.why);
        }
        let listed: BTreeSet<RefusedFile> = index
            .skills
            .iter()
            .map(|skill| of(skill.file(), &skill.digest))
            .collect();
        // Files that are gone need not be remembered.
        self.refused
            .retain(|file, _| file.writer != index.writer || listed.contains(file));
        let problems = problems.into_iter();
        let problems = problems.map(|(file, why)| format!("{}/{file}: {why}", index.writer));
        report.problems.extend(problems);
        report.waiting.extend(received.waiting);
        report.in_force.extend(received.in_force);
        report.withdrawn.extend(received.withdrawn);
        Ok(())
    }
}

/// Returns the beginning of a hash. It may be any text.
fn short(digest: &str) -> String {
    let legal = |c: &char| c.is_ascii_alphanumeric();
    digest.chars().filter(legal).take(12).collect()
}

fn peer_of(ReadIndex { index, is_own }: &ReadIndex) -> SharePeer {
    SharePeer {
        writer: index.writer.clone(),
        person: index.person.clone(),
        machine: index.machine.clone(),
        is_own: *is_own,
        n_skills: index.skills.len(),
        n_waiting: 0,
        n_accepted: 0,
    }
}

fn count(peer: &mut SharePeer, proposals: &[Proposal]) {
    let n = |state: ProposalState| {
        let is_its =
            |proposal: &&Proposal| proposal.state == state && proposal.is_from(&peer.writer);
        proposals.iter().filter(is_its).count()
    };
    (peer.n_waiting, peer.n_accepted) = (n(ProposalState::Waiting), n(ProposalState::Accepted));
}
