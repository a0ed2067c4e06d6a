// Metrics have labels in Envoy. The plugin has them in a metric's name, as names of wasm metrics can have
// them: weir.weir_namespace=.=shop;.;weir_rule=.=per-user;.;requests_total is weir.requests_total with two labels.
#pragma once
#include "domain.h"

void metrics_free(config*);
