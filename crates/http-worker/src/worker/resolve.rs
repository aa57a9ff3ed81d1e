//! Names to addresses, with those left out that may not be connected to. It is the connection itself that asks here, so what was
//! checked is what is connected to, and a name that changes its mind between two look-ups gains nothing.

use std::{
    error::Error,
    fmt, io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use hyper_util::client::legacy::connect::dns::Name;

use super::{Network, networks};

/// The addresses of a name, when they are there.
pub type Resolving = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

/// Finds the addresses of names.
pub trait Resolve: fmt::Debug + Send + Sync {
    /// The addresses of a name, in the order in which they are tried.
    fn resolve(&self, name: String) -> Resolving;
}

/// Asks the system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve(&self, name: String) -> Resolving {
        Box::pin(async move {
            Ok(tokio::net::lookup_host((name, 0)).await?.map(|address| address.ip()).collect())
        })
    }
}

/// None of a name's addresses may be connected to.
#[derive(Debug, thiserror::Error)]
#[error("its name has only addresses that the worker's settings do not allow")]
pub(super) struct AddressRefused;

/// What connections ask.
#[derive(Clone, Debug)]
pub(super) struct Guarded {
    pub(super) resolver: Arc<dyn Resolve>,
    pub(super) networks: Arc<[Network]>,
}

impl tower_service::Service<Name> for Guarded {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = Box<dyn Error + Send + Sync>;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let found = self.resolver.resolve(name.as_str().to_owned());
        let networks = self.networks.clone();
        Box::pin(async move {
            let all = found.await?;
            let any = !all.is_empty();
            let permitted = all.into_iter().filter(|address| networks::permits(&networks, *address));
            let permitted: Vec<_> = permitted.map(|address| SocketAddr::new(address, 0)).collect();
            if any && permitted.is_empty() {
                return Err(AddressRefused.into());
            }
            Ok(permitted.into_iter())
        })
    }
}
