//! Kills, a service, network and disks that fail or mean harm, and texts that are broken.

mod byte_boundaries;
mod crash;
mod disk_full;
mod downloads;
mod few_files;
mod foreign_redirects;
mod fuzz_smoke;
mod hostile_service;
mod matrix;
mod outage;
mod tls;
