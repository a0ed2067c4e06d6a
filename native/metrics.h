// In Envoy a metric has labels. The plugin has them in the metric's name, because wasm metrics have
// only names: weir.weir_namespace=.=shop;.;weir_rule=.=per-user;.;requests_total is
// weir.requests_total with two labels.
#pragma once
#include "domain.h"

void metrics_free(config*);
