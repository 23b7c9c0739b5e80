use futures_util::FutureExt as _;
use metaclaw_test_kit::{Reply, Server};
use serde_json::json;

use super::*;

fn http() -> reqwest::Client {
    // A second installation is refused, and changes nothing.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().build().unwrap()
}

fn free(pool: &EnvironmentPool) -> Vec<PoolSlot<'_>> {
    std::iter::from_fn(|| pool.take().now_or_never()?.ok()).collect()
}

#[tokio::test]
async fn an_environment_that_comes_back_has_as_many_slots_as_it_says() {
    // Each has two slots.
    let environment = || Server::new(|_| Reply::json(json!({"at_once": 2})));
    let environments = [environment(), environment()];
    let urls = environments.each_ref().map(|it| it.url().parse().unwrap());
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
