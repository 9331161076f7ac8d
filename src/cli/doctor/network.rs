//! The service: the way to it, its certificate, its clock, the key as it sees it, its catalogs.

use std::path::Path;

use url::Url;

use crate::api::{ClientError, Connectivity, ConnectivityError, FailurePoint, Service, ServiceError};
use crate::cli::build;
use crate::cli::doctor::{Check, Level, clock};
use crate::cli::failure::Failure;
use crate::cli::service_target::{self, ServiceTarget};
use crate::clock::Clock;
use crate::config::Config;
use crate::domain::exit_code::Exit;
use crate::domain::quote::{Catalog, CatalogPart};
use crate::domain::time::{Millis, Timestamp};
use crate::engine::upload_limit::Uploads;
use crate::ingest::catalog_refresh;
use crate::metrics::Metrics;
use crate::object_storage::StorageError;
use crate::store::catalog_cache as kept;

/// Odd entries of a catalog that are named.
const ODDITIES_MAX: usize = 3;

pub(super) async fn all(chosen: &ServiceTarget, config: &Config, clock: &Clock) -> Vec<Check> {
    let service = match Service::new(chosen.options.clone()) {
        Ok(service) => service,
        Err(error @ ClientError::Key) => {
            let advice = "write only the key into its file or variable, without quotation marks";
            return vec![Check::wrong("key", Exit::Unauthorised, error.to_string(), advice)];
        }
        Err(error) => return vec![Check::failed("service", Failure::from(error))],
    };
    let began = clock.now();
    let outcome = service.check_connectivity().await;
    let ended = clock.now();
    let mut checks = Vec::new();
    match &outcome {
        Ok(reached) => {
            checks.push(answered(reached, ended.tick.since(began.tick)));
            checks.push(encryption(chosen));
            checks.extend(reached.date.map(|date| clock::check(date, began.wall, ended.wall)));
            if chosen.options.api_key.is_some() {
                checks.push(balance(&service, config).await);
            }
        }
        Err(error) => checks.push(not_reached(error)),
    }
    checks.extend(poll_interval(chosen, config));
    let asked = Some(&service).filter(|_| outcome.is_ok());
    checks.push(catalog(asked, chosen, ended.wall).await);
    checks
}

/// The object stores of the configuration: that of files that rows name, and that of outputs.
pub(super) async fn object_stores(config: &Config, (state, output): (&Path, &Path)) -> Vec<Check> {
    let uploads = Uploads::new(config.limits.uploads, Metrics::new());
    let mut checks = Vec::new();
    let address = |url: &Option<Url>| url.as_ref().map(Url::to_string).unwrap_or_default();
    let (inputs, outputs) = (address(&config.inputs.store), address(&config.output.store));
    match build::input_store(config, &uploads, None) {
        Ok(None) => {}
        Ok(Some(store)) => checks.push(match store.check().await {
            Ok(None) => {
                Check::good("inputs", format!("{inputs} answers; files that rows name are uploaded to it"))
            }
            Ok(Some(why)) => Check::advice(
                "inputs",
                format!("{inputs} answers; {why}"),
                "rows that name files and have a later deadline are refused; see docs/inputs.md",
            ),
            Err(error) => of_store(
                "inputs",
                Err(error),
                "fix inputs.store or the credentials in the environment; see docs/inputs.md",
            ),
        }),
        Err(failure) => checks.push(Check::failed("inputs", failure)),
    }
    match build::output_store(config, &uploads, (state, output)) {
        Ok(None) => {}
        Ok(Some(store)) => checks.push(of_store(
            "outputs",
            store.check().await.map(|()| format!("{outputs} answers; outputs are put into it")),
            "fix output.store or the credentials in the environment; see docs/outputs.md",
        )),
        Err(failure) => checks.push(Check::failed("outputs", failure)),
    }
    checks
}

fn of_store(check: &'static str, answered: Result<String, StorageError>, hint: &'static str) -> Check {
    match answered {
        Ok(text) => Check::good(check, text),
        Err(error) => Check::wrong(check, Exit::Unreachable, error.to_string(), hint),
    }
}

fn answered(reached: &Connectivity, took: Millis) -> Check {
    let Connectivity { url, status, version, .. } = reached;
    match version {
        Some(version) => Check::good("service", format!("{url} answers in {} ms; version {version}", took.0)),
        None => Check::advice(
            "service",
            format!("{url} answers with HTTP {status} and no description of the service"),
            "check that service.base_url is the address of the service, not of a proxy",
        ),
    }
}

fn encryption(chosen: &ServiceTarget) -> Check {
    let url = &chosen.options.base_url;
    match url.scheme() {
        "https" => {
            let host = url.host_str().unwrap_or_default();
            Check::good("tls", format!("the certificate of {host} is trusted"))
        }
        _ if chosen.options.is_loopback() => Check::good("tls", "no TLS, on this machine only"),
        _ => Check::advice("tls", "no TLS: the API key is sent unencrypted", "use an https:// address"),
    }
}

fn not_reached(error: &ConnectivityError) -> Check {
    let (check, advice) = match error.end {
        FailurePoint::Name => ("service", "fix service.base_url, or name resolution (getent hosts NAME)"),
        FailurePoint::Refused => ("service", "connection refused: check host and port of service.base_url"),
        FailurePoint::Silence => {
            ("service", "check firewalls and proxies (HTTPS_PROXY), or raise service.connect_timeout")
        }
        FailurePoint::Certificate => (
            "tls",
            "the certificate is not trusted: check the name in service.base_url and this machine's clock; add the CA \
             of a proxy to the system's store (update-ca-certificates)",
        ),
        FailurePoint::Tls => {
            ("tls", "the server does not speak TLS: check scheme and port of service.base_url")
        }
        FailurePoint::Elsewhere => {
            ("service", "check service.base_url and the network; --emulator works offline")
        }
    };
    Check::wrong(check, Exit::Unreachable, error.to_string(), advice)
}

/// Readings that follow on each other faster than the service advises.
fn poll_interval(chosen: &ServiceTarget, config: &Config) -> Option<Check> {
    let hasty = build::poll_interval_warning(chosen, config)?;
    Some(Check::advice("poll", hasty, "remove poll.min, or set it to 5s or more"))
}

async fn balance(service: &Service, config: &Config) -> Check {
    match service.credits().await {
        Ok(balance) if balance.0 == 0 => {
            Check::wrong("credits", Exit::OutOfFunds, "the key is accepted; 0 credits are left", "buy some")
        }
        Ok(balance) if config.budget.min_balance.is_some_and(|least| least >= balance) => Check::wrong(
            "credits",
            Exit::OutOfFunds,
            format!("the key is accepted; {balance} are left, and budget.min_balance keeps all of them"),
            "add credits, or lower budget.min_balance",
        ),
        Ok(balance) => Check::good("credits", format!("the key is accepted; {balance} are left")),
        Err(error @ ServiceError::Unauthorised(_)) => Check::wrong(
            "credits",
            Exit::Unauthorised,
            error.to_string(),
            "check that the key belongs to this service and was not revoked",
        ),
        Err(error) => Check::failed("credits", error.into()),
    }
}

/// As the service gives them now, or as they were kept.
async fn catalog(service: Option<&Service>, chosen: &ServiceTarget, now: Timestamp) -> Check {
    let fetched = match service {
        Some(service) => catalog_refresh::fetch(service, &CatalogPart::ALL).await,
        None => Vec::new(),
    };
    let mut catalog = Catalog::default();
    for (part, answer) in fetched {
        match answer {
            Ok(answer) => catalog.read(part, &answer.data),
            Err(error) => catalog.missing.push((part, error.to_string())),
        }
    }
    let failed = catalog.missing.first().map(|(_, why)| why.clone());
    if service.is_some() && catalog.missing.len() < CatalogPart::ALL.len() {
        return described(&catalog);
    }
    let kept = match kept::read(&chosen.state) {
        Ok(kept) => kept.filter(|kept| kept.service == chosen.identity),
        Err(error) => return Check::failed("catalog", error.into()),
    };
    let why = failed.map_or_else(String::new, |why| format!("; the service's: {why}"));
    match kept {
        Some(kept) => {
            let age = service_target::format_age(now.since(kept.fetched));
            Check::advice(
                "catalog",
                format!("stored copy, {age} old{why}"),
                "prices may have changed meanwhile",
            )
        }
        None => Check::advice(
            "catalog",
            format!("no stored copy{why}"),
            "rows cannot be validated or priced until the service answers",
        ),
    }
}

fn described(catalog: &Catalog) -> Check {
    let count = |n: usize, what: &str| format!("{n} {what}");
    let found = [
        count(catalog.video.len(), "video"),
        count(catalog.image.len(), "image"),
        count(catalog.music.len(), "music models"),
        count(catalog.voices.voices.len(), "voices"),
    ];
    let check = Check::good("catalog", found.join(", "));
    if !catalog.missing.is_empty() {
        let missing = catalog.missing.iter().map(|(part, why)| format!("{}: {why}", part.name()));
        let missing = missing.collect::<Vec<_>>().join("; ");
        return Check {
            level: Level::Advice,
            found: format!("{}; not available: {missing}", check.found),
            todo: Some("rows that need a missing catalog wait until it is available".to_owned()),
            ..check
        };
    }
    if catalog.oddities.is_empty() {
        return check;
    }
    let named = catalog.oddities.iter().take(ODDITIES_MAX).map(|(part, said)| format!("{part:?}: {said}"));
    let named = named.collect::<Vec<_>>().join("; ");
    Check {
        level: Level::Advice,
        found: format!("{}; {} entries cannot be read: {named}", check.found, catalog.oddities.len()),
        todo: Some("rows that need them are not priced; a newer callsheet may read them".to_owned()),
        ..check
    }
}
