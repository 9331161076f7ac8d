//! The service of the document, offline, on a loopback port.
