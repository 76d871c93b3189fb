//! URLs of providers: what is missing is said before the provider's own code looks, which speaks to programmers.

use super::shown::shown;
use super::{Opened, Wrong};

/// Who is behind a URL, and what it needs.
struct Provider {
    feature: &'static str,
    enabled: bool,
    /// What the URL names first.
    first: &'static str,
    /// What a URL of this kind looks like.
    form: &'static str,
}

const AWS: Provider = Provider {
    feature: "aws",
    enabled: cfg!(feature = "aws"),
    first: "a bucket",
    form: "s3://bucket/path",
};
const GCP: Provider = Provider {
    feature: "gcp",
    enabled: cfg!(feature = "gcp"),
    first: "a bucket",
    form: "gs://bucket/path",
};
const AZURE: Provider = Provider {
    feature: "azure",
    enabled: cfg!(feature = "azure"),
    first: "a container",
    form: "az://container/path",
};

/// Providers whose own addresses may stand in a URL, by the end of their hosts.
const HOSTS: [(&str, Provider); 6] = [
    (".dfs.core.windows.net", AZURE),
    (".blob.core.windows.net", AZURE),
    (".dfs.fabric.microsoft.com", AZURE),
    (".blob.fabric.microsoft.com", AZURE),
    (".amazonaws.com", AWS),
    (".r2.cloudflarestorage.com", AWS),
];

fn provider(url: &url::Url) -> Result<Provider, Wrong> {
    let host = url.host_str().unwrap_or_default();
    match url.scheme() {
        "s3" | "s3a" => Ok(AWS),
        "gs" => Ok(GCP),
        "az" | "adl" | "azure" | "abfs" | "abfss" => Ok(AZURE),
        scheme @ ("http" | "https") => {
            let known = HOSTS.into_iter().find(|(end, _)| format!(".{host}").ends_with(end));
            match known {
                Some((_, provider)) if scheme == "https" => Ok(provider),
                _ => Err(own_endpoint(url)),
            }
        }
        scheme => Err(format!(
            "{scheme}: is no kind of store; known are file, memory, s3, gs and az, and the providers' https addresses"
        )),
    }
}

/// What to write for an address that speaks S3, as far as can be told.
fn own_endpoint(url: &url::Url) -> Wrong {
    let (scheme, host) = (url.scheme(), url.host_str().unwrap_or("host"));
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    let plain = if scheme == "http" { " and AWS_ALLOW_HTTP=true" } else { "" };
    format!(
        "a bucket behind an address of your own is written s3://bucket/path, with the settings \
         AWS_ENDPOINT={scheme}://{host}{port}{plain}"
    )
}

/// Opens a provider's store.
pub(super) fn open(
    given: &str,
    url: &url::Url,
    settings: impl Iterator<Item = (String, String)>,
) -> Result<Opened, Wrong> {
    let provider = provider(url)?;
    let Provider { feature, enabled, first, form } = provider;
    if url.host_str().unwrap_or_default().is_empty() {
        return Err(format!("{first} is missing; write {form}"));
    }
    if !enabled {
        return Err(format!(
            "it needs the feature `{feature}` of the crate taquba, which is off in this build"
        ));
    }
    build(url, settings).map_err(|error| tidied(&error, given, url))
}

/// The provider's own words, without the frame and without the URL, which may hold secrets.
fn tidied(error: &crate::object_store::Error, given: &str, url: &url::Url) -> Wrong {
    let mut said = match error {
        crate::object_store::Error::Generic { source, .. } => source.to_string(),
        other => other.to_string(),
    };
    for whole in [given, url.as_str()] {
        said = said.replace(whole, &shown(given));
    }
    for secret in [url.password(), url.query(), url.fragment()].into_iter().flatten() {
        if !secret.is_empty() {
            said = said.replace(secret, "…");
        }
    }
    said
}

#[cfg(not(any(feature = "aws", feature = "gcp", feature = "azure")))]
fn build(
    url: &url::Url,
    settings: impl Iterator<Item = (String, String)>,
) -> crate::object_store::Result<Opened> {
    let (store, path) = crate::object_store::parse_url_opts(url, settings)?;
    Ok((std::sync::Arc::from(store), path))
}

#[cfg(any(feature = "aws", feature = "gcp", feature = "azure"))]
fn build(
    url: &url::Url,
    settings: impl Iterator<Item = (String, String)>,
) -> crate::object_store::Result<Opened> {
    use std::sync::Arc;
    use std::time::Duration;

    use crate::object_store::path::Path;
    use crate::object_store::{ObjectStoreScheme, RetryConfig, parse_url_opts};

    // The queue tries again for ever. Were the client to try for minutes first, its error, which says what is wrong,
    // would come after the deadline of the request, which says only that it took too long.
    let retry = RetryConfig { retry_timeout: Duration::from_secs(10), ..RetryConfig::default() };
    macro_rules! client {
        ($builder:ty) => {{
            let named = <$builder>::new().with_url(url.as_str());
            let builder = settings.fold(named, |builder, (name, value)| match name.parse() {
                Ok(key) => builder.with_config(key, value),
                Err(_) => builder,
            });
            Arc::new(builder.with_retry(retry).build()?)
        }};
    }
    let (scheme, path) = ObjectStoreScheme::parse(url)?;
    let path = Path::parse(path)?;
    let store: Arc<dyn crate::object_store::ObjectStore> = match scheme {
        #[cfg(feature = "aws")]
        ObjectStoreScheme::AmazonS3 => client!(crate::object_store::aws::AmazonS3Builder),
        #[cfg(feature = "gcp")]
        ObjectStoreScheme::GoogleCloudStorage => {
            client!(crate::object_store::gcp::GoogleCloudStorageBuilder)
        }
        #[cfg(feature = "azure")]
        ObjectStoreScheme::MicrosoftAzure => {
            client!(crate::object_store::azure::MicrosoftAzureBuilder)
        }
        _ => Arc::from(parse_url_opts(url, settings)?.0),
    };
    Ok((store, path))
}

#[cfg(test)]
mod tests {
    #[track_caller]
    fn refuses(cases: &[(&str, &str)]) {
        for (url, says) in cases {
            let none = std::iter::empty::<(String, String)>();
            let said = crate::open_url(url, none).unwrap_err().to_string();
            assert!(said.contains(says), "{url}: {said}");
            assert!(!said.contains("Generic"), "{said}");
        }
    }

    #[test]
    fn a_bucket_that_is_missing_is_what_is_said_to_be_missing() {
        refuses(&[
            ("s3:/bucket", "a bucket is missing; write s3://bucket/path"),
            ("s3:bucket/x", "a bucket is missing; write s3://bucket/path"),
            ("s3://", "a bucket is missing; write s3://bucket/path"),
            ("s3:///x", "a bucket is missing; write s3://bucket/path"),
            ("gs:///x", "a bucket is missing; write gs://bucket/path"),
            ("az:///x", "a container is missing; write az://container/path"),
        ]);
    }

    #[test]
    fn an_address_of_ones_own_is_shown_as_a_bucket_with_an_endpoint() {
        refuses(&[
            (
                "http://host:9000/bucket",
                "s3://bucket/path, with the settings AWS_ENDPOINT=http://host:9000 and AWS_ALLOW_HTTP=true",
            ),
            ("https://host/bucket", "AWS_ENDPOINT=https://host"),
            ("ftp://host/x", "ftp: is no kind of store"),
        ]);
    }

    #[test]
    fn a_provider_that_is_not_built_in_is_named_by_its_feature() {
        for (enabled, url, says) in [
            (cfg!(feature = "aws"), "s3://bucket/x", "feature `aws`"),
            (cfg!(feature = "aws"), "https://s3.eu-west-1.amazonaws.com/bucket", "feature `aws`"),
            (cfg!(feature = "gcp"), "gs://bucket/x", "feature `gcp`"),
            (cfg!(feature = "azure"), "az://container/x", "feature `azure`"),
        ] {
            if !enabled {
                refuses(&[(url, says)]);
            }
        }
    }
}
