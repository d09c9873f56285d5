//! CA bundles of brokers with a private CA.

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

/// Parses a PEM bundle. Its users would otherwise ignore what is wrong with it, or report it in their own words (QUE-9,
/// SQS-1).
///
/// # Errors
/// The problem, as the end of a sentence, if it has no certificates, or one that is not valid.
pub(super) fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let mut roots = RootCertStore::empty();
    let mut certificates = Vec::new();
    for parsed in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let position = certificates.len() + 1;
        let invalid = |error: &dyn std::fmt::Display| format!("certificate {position}: {error}");
        let certificate = parsed.map_err(|error| invalid(&error))?;
        roots
            .add(certificate.clone())
            .map_err(|error| invalid(&error))?;
        certificates.push(certificate);
    }
    if certificates.is_empty() {
        return Err("it has no block BEGIN CERTIFICATE".to_owned());
    }
    Ok(certificates)
}

#[cfg(test)]
mod tests {
    use super::certificates;

    /// QUE-9, SQS-1
    #[test]
    fn what_is_wrong_with_a_bundle_is_told() {
        let certified = rcgen::generate_simple_self_signed(["ca".to_owned()]).unwrap();
        let valid = certified.cert.pem();
        assert_eq!(certificates(&format!("{valid}{valid}")).unwrap().len(), 2);
        let block = |text: &str| {
            format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
        };
        for (pem, expected) in [
            (String::new(), "no block BEGIN CERTIFICATE"),
            ("no PEM".to_owned(), "no block BEGIN CERTIFICATE"),
            (format!("{valid}{}", block("***")), "certificate 2: "),
            (block("AAAA"), "certificate 1: "),
        ] {
            let error = certificates(&pem).unwrap_err();
            assert!(error.contains(expected), "{pem}: {error}");
        }
    }
}
