//! The price of a request before it is paid: validated, defaulted and priced as the service would.
