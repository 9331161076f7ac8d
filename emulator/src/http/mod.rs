//! HTTP around the service: routes, envelopes, keys, bounds, and the faults of the wire.

mod api;
mod control;
mod media;
mod reply;
mod trouble;

pub(crate) use api::router as api_router;
pub(crate) use media::router as media_router;
