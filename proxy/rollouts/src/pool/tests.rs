use axum::{Json, Router, routing::get};
use futures_util::FutureExt as _;
use serde_json::json;
use tokio::{net::TcpListener, task::JoinSet};

use super::*;

fn http() -> reqwest::Client {
    // A second installation is refused, and changes nothing.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().build().unwrap()
}

/// Serves the health of an environment with two slots.
async fn environment(serving: &mut JoinSet<()>) -> HttpAddress {
    let health = || async { Json(json!({"at_once": 2})) };
    let routes = Router::new().route("/healthz", get(health));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    serving.spawn(async move { axum::serve(listener, routes).await.unwrap() });
    format!("http://{address}").parse().unwrap()
}

/// Takes all slots that are free.
fn free(pool: &EnvironmentPool) -> Vec<PoolSlot<'_>> {
    std::iter::from_fn(|| pool.take().now_or_never()?.ok()).collect()
}

#[tokio::test]
async fn an_environment_that_comes_back_has_as_many_slots_as_it_says() {
    let mut serving = JoinSet::new();
    let urls = [
        environment(&mut serving).await,
        environment(&mut serving).await,
    ];
    let access = EnvironmentAccess {
        http: http(),
        key: None,
        timeout: Duration::from_secs(1),
        at_once: 10,
    };
    let pool = EnvironmentPool::remote(&urls, &access);
    pool.refresh(|_| ()).await;
    assert_eq!(free(&pool).len(), 4);
    // One of its slots is held, and the other one is free.
    let held = pool.take().await.unwrap();
    pool.leave_out(held.index);
    drop(held);
    pool.refresh(|_| ()).await;
    assert_eq!(free(&pool).len(), 4);
}
