//! The upstream `llm`: whether it answers, and takes the key.

use metaclaw_settings::{
    Loaded,
    address::{host, is_bedrock},
};

use super::check::DoctorCheck;
use crate::commands::models::{ModelList, ModelServer, list_url};

const NAME: &str = "upstream";

pub(super) async fn check(loaded: &Loaded) -> DoctorCheck {
    let llm = &loaded.config.llm;
    let Some(base) = &llm.api_base else {
        let others = loaded.config.gateway.upstreams.len();
        return if others == 0 {
            DoctorCheck::note(NAME, "none is configured (llm.api_base)")
        } else {
            DoctorCheck::note(NAME, format!("{others} in upstreams.*, not tried"))
        };
    };
    if is_bedrock(base) {
        return DoctorCheck::note(
            NAME,
            format!("{}: not tried, because it lists no models", host(base)),
        );
    }
    let server = ModelServer {
        base: base.clone(),
        key: llm.api_key.clone(),
    };
    let url = list_url(base);
    match server.models().await {
        ModelList::Listed(_) => DoctorCheck::fine(NAME, format!("{url} answers")),
        ModelList::Refused { status, .. } if llm.api_key.is_some() => DoctorCheck::bad(
            NAME,
            format!("{url} refuses the key ({status})"),
            "`metaclaw config llm.api_key KEY`, then stop and start",
        ),
        ModelList::Refused { .. } => {
            DoctorCheck::fine(NAME, format!("{url} answers; the key is the agent's own"))
        }
        ModelList::Missing(status) if status.is_server_error() => DoctorCheck::bad(
            NAME,
            format!("{url} answers {status}"),
            "it is the provider's: try again later",
        ),
        ModelList::Missing(status) => DoctorCheck::note(
            NAME,
            format!("{url} answers {status}: it is there, and lists no models"),
        ),
        ModelList::Unreachable(why) => DoctorCheck::bad(
            NAME,
            format!("{url}: {why}"),
            "check llm.api_base, and the way there (HTTPS_PROXY, upstreams.llm.proxy)",
        ),
    }
}
