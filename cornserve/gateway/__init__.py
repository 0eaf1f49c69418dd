"""The gateway: HTTP in, graphs of unit-task invocations out.

The gateway is stateless and scales out: `app_registry` watches the apps and routes in the store. `http` receives
requests, `endpoints` parses them, `media` loads their images, `request` executes them, and `observe` counts and traces
them.
"""
