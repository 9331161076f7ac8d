//! HTTP around the service: routes, envelopes, keys, bounds, and the faults of the wire.

mod api;
mod control;
mod fault_injection;
mod media;
mod reply;

pub(crate) use api::router as api_router;
pub(crate) use media::router as media_router;
