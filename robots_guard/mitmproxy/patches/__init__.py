"""What is replaced inside mitmproxy: one module a subject, each with the reason and a test that fails when upstream
changes. None of these classes is a public interface; all that is known of them is known here."""
