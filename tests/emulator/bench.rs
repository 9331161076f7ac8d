//! An emulator in this process, and a client with its key.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]
#![allow(dead_code, reason = "each test uses its part of it")]

use std::time::Duration;

use crate::emulator::process::http_client;
use callsheet_emulator::{DEFAULT_API_KEY, Emulator, FaultPlan, Options, start};
use reqwest::{Client, Method, Response, StatusCode};
use serde_json::{Value, json};

/// An emulator and a client with its key.
pub(crate) struct Bench {
    pub(crate) emulator: Emulator,
    pub(crate) client: Client,
}

pub(crate) fn quick() -> Options {
    Options { speed: 10_000.0, credits: 1_000, ..Options::default() }
}

pub(crate) fn standing_still() -> Options {
    Options { manual_clock: true, ..quick() }
}

pub(crate) fn faulty(plan: &str) -> Options {
    Options { faults: Some(FaultPlan::parse(plan).unwrap()), ..quick() }
}

impl Bench {
    pub(crate) async fn new(options: Options) -> Self {
        let client = http_client()
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .build()
            .unwrap();
        Self { emulator: start(options).await.unwrap(), client }
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.client.request(method, format!("{}{path}", self.emulator.base_url()))
    }

    pub(crate) async fn post_with_key(
        &self,
        path: &str,
        key: &str,
        body: &Value,
    ) -> reqwest::Result<Response> {
        let request = self.request(Method::POST, path).bearer_auth(DEFAULT_API_KEY);
        request.header("Idempotency-Key", key).json(body).send().await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> (StatusCode, Value) {
        let response =
            self.request(Method::POST, path).bearer_auth(DEFAULT_API_KEY).json(body).send().await.unwrap();
        (response.status(), response.json().await.unwrap())
    }

    pub(crate) async fn get(&self, path: &str) -> (StatusCode, Value) {
        let response = self.request(Method::GET, path).bearer_auth(DEFAULT_API_KEY).send().await.unwrap();
        (response.status(), response.json().await.unwrap())
    }

    pub(crate) async fn finished(&self, id: &Value) -> Value {
        for _ in 0..2_000 {
            let (_, body) = self.get(&format!("/api/v1/tasks/{}", id.as_str().unwrap())).await;
            if !["pending", "processing"].contains(&body["data"]["status"].as_str().unwrap()) {
                return body["data"].clone();
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        panic!("task {id} did not finish");
    }

    pub(crate) async fn balance(&self) -> u64 {
        self.get("/api/v1/credits").await.1["data"]["remainingCredits"].as_u64().unwrap()
    }
}

pub(crate) fn video() -> Value {
    json!({"model": "house-c1", "prompt": "a boat"})
}

pub(crate) async fn json_of(response: reqwest::Result<Response>) -> (StatusCode, Value) {
    let response = response.unwrap();
    (response.status(), response.json().await.unwrap())
}
