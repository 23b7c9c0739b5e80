//! Keeps `metaclaw off|on` and sessions off the record over a restart, in two small files of the home.

use std::{fs, io, path::Path, sync::Arc};

use anyhow::{Context as _, bail};
use futures_util::future::BoxFuture;
use metaclaw_chat::{AgentId, if_there};
use metaclaw_gateway::{Mark, OffRecord, Privacy, RelayOnly, Switch};
use metaclaw_settings::write_private;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::home::Home;

/// The request of `metaclaw off|on`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchChange {
    /// Whether requests are only relayed.
    pub off: bool,
    /// The agent, or `None` for all.
    pub agent: Option<AgentId>,
}

// === impl SwitchChange ===

impl SwitchChange {
    /// Returns which agents are only relayed after this request.
    ///
    /// # Errors
    /// One agent cannot be switched on while all are off.
    pub fn applied(&self, mut off: RelayOnly) -> anyhow::Result<RelayOnly> {
        match (self.off, &self.agent) {
            (true, None) => off.all = true,
            (false, None) => off = RelayOnly::default(),
            (true, Some(agent)) => {
                off.agents.insert(agent.clone());
            }
            (false, Some(agent)) if off.all => {
                bail!("everyone is off, agent {agent} among them: `metaclaw on` first")
            }
            (false, Some(agent)) => {
                off.agents.remove(agent);
            }
        }
        Ok(off)
    }
}

/// Describes which agents are only relayed, or returns `None` if there are none.
pub fn off_text(off: &RelayOnly) -> Option<String> {
    let who = match (off.all, off.agents.is_empty()) {
        (true, _) => "everyone".to_owned(),
        (false, true) => return None,
        (false, false) => {
            let agents: Vec<&str> = off.agents.iter().map(AgentId::as_str).collect();
            format!("agent {}", agents.join(", agent "))
        }
    };
    Some(format!(
        "relay only, for {who}: nothing is put in, kept, judged or learned (metaclaw on)"
    ))
}

/// Reads what an earlier process, or `metaclaw off`, left in the home.
///
/// # Errors
/// An unreadable file is an error, because an agent would be on although it was switched off.
pub fn load(home: &Home) -> anyhow::Result<Privacy> {
    let off = load_off(home).context("`metaclaw on` writes it anew")?;
    let path = home.off_record();
    let marks = read(&path)?.unwrap_or_default();
    let marks = marks.lines().map(serde_json::from_str::<Mark>);
    let marks: Vec<Mark> = marks
        .collect::<Result<_, _>>()
        .with_context(|| format!("{} does not read back: remove it, and what was said off the record in a session that goes on may be kept", path.display()))?;
    Ok(Privacy {
        switch: Switch::new(off),
        off_record: OffRecord::new(marks),
    })
}

pub(crate) fn load_off(home: &Home) -> anyhow::Result<RelayOnly> {
    let path = home.off();
    let Some(text) = read(&path)? else {
        return Ok(RelayOnly::default());
    };
    serde_json::from_str(&text).with_context(|| format!("{} does not read back", path.display()))
}

pub(crate) fn save_off(home: &Home, off: &RelayOnly) -> io::Result<()> {
    let path = home.off();
    if off.is_anybody() {
        return write_private(&path, &serde_json::to_vec(off)?);
    }
    if_there(fs::remove_file(path)).map(drop)
}

/// Writes which sessions are off the record whenever that changes, and once more at the end.
pub fn keep_off_record(
    privacy: Arc<Privacy>,
    home: Home,
    ending: CancellationToken,
) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        let mut changes = privacy.off_record.changes();
        loop {
            let is_ending = tokio::select! {
                () = ending.cancelled() => true,
                changed = changes.changed() => changed.is_err(),
            };
            if !is_ending || changes.has_changed().unwrap_or_default() {
                let (privacy, path) = (Arc::clone(&privacy), home.off_record());
                let write = move || write_marks(&privacy.off_record, &path);
                let written = tokio::task::spawn_blocking(write).await;
                if let Err(error) = written.map_err(io::Error::other).flatten() {
                    warn!(%error, "what is off the record is not known after a restart");
                }
            }
            if is_ending {
                return;
            }
        }
    })
}

fn write_marks(off_record: &OffRecord, path: &Path) -> io::Result<()> {
    let mut lines = Vec::new();
    for mark in off_record.marks() {
        serde_json::to_writer(&mut lines, &mark)?;
        lines.push(b'\n');
    }
    write_private(path, &lines)
}

fn read(path: &Path) -> anyhow::Result<Option<String>> {
    if_there(fs::read_to_string(path)).with_context(|| format!("cannot read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(off: bool, agent: Option<&str>) -> SwitchChange {
        let agent = agent.map(|agent| agent.parse().unwrap());
        SwitchChange { off, agent }
    }

    #[test]
    fn the_switch_is_of_everyone_or_of_one_and_kept_in_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::at(folder.path().to_owned());
        assert_eq!(load_off(&home).unwrap(), RelayOnly::default());
        let off = change(true, Some("work"))
            .applied(RelayOnly::default())
            .unwrap();
        assert_eq!(
            off_text(&off).unwrap(),
            "relay only, for agent work: nothing is put in, kept, judged or learned (metaclaw on)"
        );
        save_off(&home, &off).unwrap();
        assert_eq!(load_off(&home).unwrap(), off);
        let all = change(true, None).applied(off.clone()).unwrap();
        let refused = change(false, Some("work"))
            .applied(all.clone())
            .unwrap_err();
        assert_eq!(
            refused.to_string(),
            "everyone is off, agent work among them: `metaclaw on` first"
        );
        assert_eq!(
            change(false, Some("work")).applied(off).unwrap(),
            RelayOnly::default()
        );
        let on = change(false, None).applied(all).unwrap();
        assert_eq!(off_text(&on), None);
        save_off(&home, &on).unwrap();
        assert!(!home.off().exists());
    }

    #[test]
    fn a_file_that_does_not_read_back_is_no_yes() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::at(folder.path().to_owned());
        fs::write(home.off(), "{\"al\":true}").unwrap();
        let error = format!("{:#}", load(&home).unwrap_err());
        assert!(
            error.starts_with("`metaclaw on` writes it anew: "),
            "{error}"
        );
        fs::remove_file(home.off()).unwrap();
        fs::write(home.off_record(), "x\n").unwrap();
        assert!(load(&home).is_err());
    }

    #[tokio::test]
    async fn marks_come_back_as_they_were() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::at(folder.path().to_owned());
        let text = concat!(
            r#"{"agent":"main","session":"s-1"}"#,
            "\n",
            r#"{"chain":"0101010101010101010101010101010101010101010101010101010101010101"}"#,
            "\n"
        );
        fs::write(home.off_record(), text).unwrap();
        let privacy = load(&home).unwrap();
        assert_eq!(privacy.off_record.marks().len(), 2);
        write_marks(&privacy.off_record, &home.off_record()).unwrap();
        assert_eq!(fs::read_to_string(home.off_record()).unwrap(), text);
    }
}
