//! The coordinator: one loop over inputs, the services around it, the HTTP API.
