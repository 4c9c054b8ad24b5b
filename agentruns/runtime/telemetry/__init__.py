"""Tell OpenTelemetry what happens, where the application has it and has set a provider; else do nothing."""
