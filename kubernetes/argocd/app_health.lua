-- The health of an App in Argo CD: `resource.customizations.health.cornserve.ai_App` of the ConfigMap `argocd-cm`.
-- Healthy: all replicas of the newest generation are ready. Suspended: the app is parked, with 0 replicas.
local conditions = {}
if obj.status ~= nil and obj.status.conditions ~= nil then
  for _, condition in ipairs(obj.status.conditions) do
    if condition.observedGeneration == obj.metadata.generation then
      conditions[condition.type] = condition
    end
  end
end

local function health(status, condition)
  return {status = status, message = condition.message or condition.reason}
end

local degraded, ready, complete = conditions.Degraded, conditions.Ready, conditions.ReplicasReady
if ready == nil or complete == nil then
  return {status = "Progressing", message = "the controller has not seen this generation"}
end
if degraded ~= nil and degraded.status == "True" then
  return health("Degraded", degraded)
end
if ready.reason == "ScaledToZero" and complete.status == "True" then
  return health("Suspended", ready)
end
if complete.status == "True" then
  return health("Healthy", complete)
end
if ready.status == "True" then
  return health("Progressing", complete)
end
return health("Progressing", ready)
